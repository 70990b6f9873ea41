// SPDX-License-Identifier: Apache-2.0
// What a sample cache saves: CPU time of a row (fetch, decode, crop, flip, normalise) of the images
// below DIR, by one worker, with each kind of cache and with none. The kinds take turns, epoch by
// epoch; printed is the median of each. Before that, the constants of the cost model as they are on
// this machine (server/engine/cache/sample_cache_cost.cpp).
//
//   spdld_cache_bench DIR [EPOCHS]
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/cache/sample_cache_disk.h"
#include "engine/cache/sample_caches.h"
#include "engine/plan/builtin_ops.h"
#include "engine/run.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "source/files_source.h"
#include "spec/parse.h"
#include "tests/unit/engine/no_calls.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

template <typename T>
T must(Result<T> result) {
  if (result) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}

double cpu_ns() { return static_cast<double>(thread_cpu_time().count()); }

std::shared_ptr<const Plan> plan_of(const std::string& root, const std::string& cache,
                                    const source::Source* source) {
  const std::string text =
      "pipeline: bench\nsource: {files: {root: " + root +
      "}}\nshuffle: global\nstages:\n  - fetch\n  - decode_image\n"
      "  - random_resized_crop: {size: 224}\n  - random_horizontal_flip\n"
      "  - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n"
      "batch: {size: 1}\n" +
      (cache.empty() ? "" : "cache: {" + cache + ", size: 1GiB}\n");
  static const Registry ops =
      builtin_ops(std::make_shared<media::SeekIndexes>(std::uint64_t{1} << 30));
  auto spec = must(spec::parse_pipeline(text, "bench.yaml", ops, {}));
  const std::vector<source::SourceField> fields{{.name = "image"}};
  return must(compile(std::move(spec), ops, source ? source->fields() : fields));
}

// One way of making the rows.
struct Side {
  std::string name;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<SampleCache> cache;
  std::unique_ptr<Run> run;
  std::vector<double> epochs_ns = {};  // CPU time of a row
};

double epoch(Side& side, std::uint64_t number, std::uint64_t items) {
  QuietPort port;
  std::vector<std::byte> slot(side.plan->layout.slot_bytes());
  const double begun = cpu_ns();
  for (std::uint64_t step = 0; step < items; ++step) {
    const BatchOrder order{.epoch = number,
                           .step = step,
                           .rows = {.first = step, .rows = 1, .valid = 1},
                           .next_position = step + 1,
                           .slot = slot.data(),
                           .ticket = 0};
    Row row;
    row.order = &order;
    row.port = &port;
    StreamFailure failure;
    for (std::uint64_t token = 1;; ++token) {
      source::FakeSink sink;
      NoCalls no_calls;
      const RowState state =
          side.run->process(row, 0, 0, {.fetch = sink, .call = no_calls}, token, failure);
      if (state == RowState::kDone) break;
      if (state == RowState::kFailed) must(Result<int>(tl::unexpected<Status>(failure.status)));
      if (state == RowState::kPending) side.run->fetched(row, sink.wait(token));
    }
  }
  return (cpu_ns() - begun) / static_cast<double>(items);
}

// Least squares of time = a * bytes + b * pixels.
class Fit {
 public:
  void add(double bytes, double pixels, double took_ns) {
    bb_ += bytes * bytes;
    bp_ += bytes * pixels;
    pp_ += pixels * pixels;
    bt_ += bytes * took_ns;
    pt_ += pixels * took_ns;
  }
  void print(const char* what) const {
    const double determinant = bb_ * pp_ - bp_ * bp_;
    std::printf("%-14s %.2f ns a byte, %.2f ns a pixel\n", what,
                (bt_ * pp_ - pt_ * bp_) / determinant, (pt_ * bb_ - bt_ * bp_) / determinant);
  }

 private:
  double bb_ = 0, bp_ = 0, pp_ = 0, bt_ = 0, pt_ = 0;
};

// Many crops of many images. Bytes are the region's share of the file's.
void print_decode_constants(const Plan& plan, source::Source& source) {
  class Discard final : public RowSink {
   public:
    void row(int, const std::uint8_t*) override {}
  } rows;
  const auto decoder = plan.image->decode->make_decoder();
  Fit indexed, recoded;
  double png_pixels = 0, png_ns = 0, recode_bytes = 0, recode_ns = 0;
  for (std::uint64_t item = 0; item < source.size(); ++item) {
    source::FakeSink sink;
    source::FetchedItem fetched;
    const source::PartRequest request;
    const auto state = must(source.fetch(item, {&request, 1}, fetched, sink, 1));
    if (state == source::FetchState::kPending && !sink.wait(1).ok()) continue;
    const std::span<const std::byte> bytes = fetched.part(0);
    auto size = decoder->open(bytes);
    if (!size || !decoder->read({0, 0, size->width, size->height}, rows).ok()) continue;
    const bool png = bytes[0] != std::byte{0xff};
    std::vector<std::byte> kept;
    double begun = cpu_ns();
    if ((size = decoder->open(bytes))) {
      const auto made = decoder->recode();
      recode_ns += made.empty() ? 0 : cpu_ns() - begun;
      recode_bytes += made.empty() ? 0 : static_cast<double>(bytes.size());
      kept.assign(made.begin(), made.end());
    }
    for (const int part : {1, 2, 4, 8}) {
      const Rect region{0, 0, std::max(size->width / part, 1),
                        std::max(part == 8 ? size->height : size->height / part, 1)};
      const double pixels = static_cast<double>(region.width) * region.height;
      const double share = pixels / (static_cast<double>(size->width) * size->height);
      begun = cpu_ns();
      if (!decoder->open(bytes) || !decoder->read(region, rows).ok()) break;
      const double took = cpu_ns() - begun;
      if (png) {
        png_pixels += static_cast<double>(size->width) * region.height;
        png_ns += took;
        continue;
      }
      indexed.add(share * static_cast<double>(bytes.size()), pixels, took);
      begun = cpu_ns();
      if (kept.empty() || !decoder->open_recoded(kept) || !decoder->read(region, rows).ok())
        continue;
      recoded.add(share * static_cast<double>(kept.size()), pixels, cpu_ns() - begun);
    }
  }
  if (png_pixels > 0) std::printf("PNG pixels     %.2f ns a pixel\n", png_ns / png_pixels);
  indexed.print("JPEG by index");
  recoded.print("coefficients");
  if (recode_bytes > 0) std::printf("recode         %.2f ns a byte\n", recode_ns / recode_bytes);
}

void print_memory_constants(const std::string& dir) {
  constexpr std::size_t kSize = std::size_t{512} << 20;
  constexpr std::size_t kItem = std::size_t{512} << 10;
  const auto per_byte = [](double ns) { return ns / static_cast<double>(kSize); };
  const auto map = [] {
    return static_cast<std::byte*>(
        ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  std::vector<std::byte> item(kItem, std::byte{1});
  std::byte* const memory = map();
  double begun = cpu_ns();
  for (std::size_t at = 0; at < kSize; at += kItem) std::memcpy(memory + at, item.data(), kItem);
  std::printf("keep           %.3f ns a byte\n", per_byte(cpu_ns() - begun));
  begun = cpu_ns();
  for (std::size_t at = 0; at < kSize; at += kItem) std::memcpy(item.data(), memory + at, kItem);
  std::printf("memory         %.3f ns a byte\n", per_byte(cpu_ns() - begun));
  const UniqueFd file = must(open_unnamed_file(dir));
  begun = cpu_ns();
  for (std::size_t at = 0; at < kSize; at += kItem) {
    if (::pwrite(file.get(), item.data(), kItem, static_cast<off_t>(at)) < 0) return;
  }
  std::printf("write          %.3f ns a byte\n", per_byte(cpu_ns() - begun));
  begun = cpu_ns();
  bool held = true;
  for (std::size_t at = 0; at < kSize; at += kItem) {
    if (::pread(file.get(), item.data(), kItem, static_cast<off_t>(at)) < 0) return;
    held = SampleCache::holds({.stamp = {}, .size = {}, .bytes = kItem}, item) || held;
  }
  std::printf("disk           %.3f ns a byte%s\n", per_byte(cpu_ns() - begun), held ? "" : "!");
  begun = cpu_ns();
  for (std::size_t at = 0; at < kSize; at += kItem) {
    if (::pread(file.get(), item.data(), kItem, static_cast<off_t>(at)) < 0) return;
  }
  std::printf("read           %.3f ns a byte\n", per_byte(cpu_ns() - begun));
  ::munmap(memory, kSize);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const std::string& root, std::uint64_t epochs) {
  source::IoPool io({.threads = 2});
  const std::string dir = "/tmp/spdld-cache-bench";
  SampleCaches caches({.ram_bytes = 8 * kGiB,
                       .disk_bytes = 8 * kGiB,
                       .dir = dir,
                       .io = io,
                       .free_memory = nullptr,
                       .free_disk = nullptr});
  FilesSpec files;
  files.root = root;
  const std::shared_ptr<source::Source> source =
      must(source::open_files(files, source::SourceOptions(io)));
  const std::uint64_t items = source->size();
  print_decode_constants(*plan_of(root, "", source.get()), *source);
  print_memory_constants(dir);

  SystemClock clock;
  std::vector<Side> sides;
  for (const auto& [name, cache] :
       {std::pair("none", ""), std::pair("decoded, ram", "form: decoded, where: ram"),
        std::pair("decoded, disk", "form: decoded, where: disk"),
        std::pair("coefficients, ram", "form: coefficients, where: ram"),
        std::pair("coefficients, disk", "form: coefficients, where: disk"),
        std::pair("encoded, ram", "form: encoded, where: ram")}) {
    Side side{.name = name, .plan = plan_of(root, cache, source.get()), .cache = {}, .run = {}};
    if (side.plan->spec.cache) {
      const CacheEstimate estimate = caches.estimate(*side.plan, *source);
      std::printf("%s\n", cache_text(*side.plan->spec.cache, estimate).c_str());
    }
    side.cache = must(caches.open(*side.plan, *source));
    side.run =
        std::make_unique<Run>(side.plan, source, source::Sampler(items, side.plan->spec.shuffle, 1),
                              1, RunPool{}, RunLimits{}, clock, side.cache);
    std::printf("%-18s first epoch %.3f ms a row\n", name, epoch(side, 0, items) / 1e6);
    sides.push_back(std::move(side));
  }
  for (std::uint64_t number = 1; number <= epochs; ++number) {
    for (Side& side : sides) side.epochs_ns.push_back(epoch(side, number, items));
  }
  const double none = median(sides[0].epochs_ns);
  for (const Side& side : sides) {
    const double row = median(side.epochs_ns);
    std::printf("%-18s warm epoch  %.3f ms a row, %.2f of none", side.name.c_str(), row / 1e6,
                row / none);
    if (side.cache != nullptr) {
      const SampleCache::Snapshot seen = side.cache->snapshot();
      std::printf("; %llu items in %.1f MB, %llu hits, %llu misses, %llu dropped",
                  static_cast<unsigned long long>(seen.items),
                  static_cast<double>(seen.bytes) / 1e6, static_cast<unsigned long long>(seen.hits),
                  static_cast<unsigned long long>(seen.misses),
                  static_cast<unsigned long long>(seen.dropped));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace spdld::engine

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: spdld_cache_bench DIR [EPOCHS]\n");
    return 2;
  }
  return spdld::engine::run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 5);
}
