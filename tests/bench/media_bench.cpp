// SPDX-License-Identifier: Apache-2.0
// What decode_image's promises (regions equal to full decodes, truncation always seen, corruption
// never passed on, upright pixels) cost over libjpeg-turbo's bare crop-and-skip loop, which makes
// none of them. The same random_resized_crop regions, and whole images, of the JPEGs below
// SPDLD_BENCH_DATA for both; what is paired takes turns file by file and counts CPU time, so that
// its ratio is fair on a busy machine. The ways are those of docs/media/jpeg.md. With
// SPDLD_BENCH_TARGET=AVX2, say, our kernels use no better instruction set than that one of
// Highway's.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// jpeglib.h needs <cstdio> first.
#include <jpeglib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "media/decode_image.h"

namespace spdld::media {
namespace {

// What is decoded of an image.
enum class Part { kRegion, kWhole };

struct Crop {
  std::string jpeg;
  Size size;
  Rect region;
  std::vector<std::byte> recoded = {};

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(jpeg)); }
  Rect rect(Part part) const {
    return part == Part::kRegion ? region : Rect{0, 0, size.width, size.height};
  }
};

// torchvision's RandomResizedCrop with its defaults, one try.
Rect random_region(Size size, KeyedRng& rng) {
  const double area = size.width * size.height * rng.uniform(0.08, 1.0);
  const double ratio = std::exp(rng.uniform(std::log(3.0 / 4), std::log(4.0 / 3)));
  Rect region;
  region.width = std::clamp(static_cast<int>(std::sqrt(area * ratio)), 1, size.width);
  region.height = std::clamp(static_cast<int>(std::sqrt(area / ratio)), 1, size.height);
  region.x = static_cast<int>(rng.below(static_cast<std::uint64_t>(size.width - region.width) + 1));
  region.y =
      static_cast<int>(rng.below(static_cast<std::uint64_t>(size.height - region.height) + 1));
  return region;
}

class NoRows final : public RowSink {
 public:
  void row(int /*y*/, const std::uint8_t* pixels) override { benchmark::DoNotOptimize(pixels); }
};

class BareLoop {
 public:
  BareLoop() {
    info_.err = jpeg_std_error(&errors_);
    errors_.emit_message = [](j_common_ptr, int) {};
    jpeg_create_decompress(&info_);
  }
  ~BareLoop() { jpeg_destroy_decompress(&info_); }
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;

  int components(const std::string& jpeg) {
    read_header(jpeg);
    const int components = info_.num_components;
    jpeg_abort_decompress(&info_);
    return components;
  }

  void read(const Crop& crop, Part part) {
    const Rect region = crop.rect(part);
    read_header(crop.jpeg);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    auto x = static_cast<JDIMENSION>(region.x);
    auto width = static_cast<JDIMENSION>(region.width);
    jpeg_crop_scanline(&info_, &x, &width);
    if (region.y > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(region.y));
    const std::size_t row_bytes = std::size_t{width} * 3;
    rows_.resize(row_bytes * kRowsAtOnce);
    std::array<JSAMPROW, kRowsAtOnce> rows{};
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) rows[i] = rows_.data() + i * row_bytes;
    const auto end = static_cast<JDIMENSION>(region.y + region.height);
    while (info_.output_scanline < end) {
      jpeg_read_scanlines(&info_, rows.data(), kRowsAtOnce);
      benchmark::DoNotOptimize(rows);
    }
    jpeg_abort_decompress(&info_);
  }

 private:
  static constexpr std::size_t kRowsAtOnce = 4;

  void read_header(const std::string& jpeg) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
    jpeg_read_header(&info_, TRUE);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::vector<JSAMPLE> rows_;
};

// How our decoder finds the files.
enum class Way {
  kLibjpeg,  // it leaves them to libjpeg-turbo
  kFirst,    // none was seen before, and each is given an index
  kWithout,  // there is no room for indexes
  kByIndex,  // each has one
  kKept,     // their coefficients were kept
};

class OurReader {
 public:
  explicit OurReader(Way way = Way::kLibjpeg) : way_(way) { forget(); }
  // As if no file had been seen before.
  void forget() {
    JpegOptions jpeg;
    if (way_ != Way::kLibjpeg)
      jpeg.indexes = std::make_shared<SeekIndexes>(way_ == Way::kWithout ? 0 : kIndexBytes);
    decoder_ =
        DecodeImage(ImageMode::of(ColorMode::kRgb), false, {}, std::move(jpeg)).make_decoder();
  }
  // False for what decode_image refuses.
  bool read(const Crop& crop, Part part) {
    NoRows rows;
    const Result<Size> size = crop.recoded.empty() || way_ != Way::kKept
                                  ? decoder_->open(crop.bytes())
                                  : decoder_->open_recoded(crop.recoded);
    return size.has_value() && decoder_->read(crop.rect(part), rows).ok();
  }
  void read_all(Part part);
  std::vector<std::byte> recode(const Crop& crop) {
    if (!decoder_->open(crop.bytes())) return {};
    const std::span<const std::byte> recoded = decoder_->recode();
    return {recoded.begin(), recoded.end()};
  }
  Size size_of(const Crop& crop) { return decoder_->open(crop.bytes()).value_or(Size{}); }

 private:
  static constexpr std::uint64_t kIndexBytes = std::uint64_t{1} << 30;

  const Way way_;
  std::unique_ptr<ImageDecoder> decoder_;
};

// Read once: the comparison is of decoding, not of disks.
const std::vector<Crop>& crops() {
  static const std::vector<Crop> kCrops = [] {
    std::vector<Crop> found;
    const char* root = std::getenv("SPDLD_BENCH_DATA");
    if (root == nullptr) return found;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    KeyedRng rng(7);
    OurReader reader(Way::kKept);
    BareLoop bare;
    for (const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      Crop crop{std::string(std::istreambuf_iterator<char>(file), {}), {}, {}};
      crop.size = reader.size_of(crop);
      if (crop.size == Size{} || !crop.jpeg.starts_with("\xFF\xD8")) continue;
      if (bare.components(crop.jpeg) == 4) continue;  // which the bare loop cannot make RGB
      crop.region = random_region(crop.size, rng);
      crop.recoded = reader.recode(crop);
      found.push_back(std::move(crop));
    }
    return found;
  }();
  return kCrops;
}

void OurReader::read_all(Part part) {
  for (const Crop& crop : crops()) benchmark::DoNotOptimize(read(crop, part));
}

bool lacks_data(benchmark::State& state) {
  if (!crops().empty()) return false;
  state.SkipWithError("set SPDLD_BENCH_DATA to a directory with JPEGs");
  return true;
}

// A worker decodes what it has just fetched: the bytes are in its cache.
void fetch(const Crop& crop, Way way) {
  if (way == Way::kKept) return;  // nothing is fetched
  static std::string buffer;
  buffer = crop.jpeg;
  benchmark::DoNotOptimize(buffer.data());
}

void bare(benchmark::State& state, Part part) {
  if (lacks_data(state)) return;
  BareLoop bare;
  for ([[maybe_unused]] auto _ : state) {
    for (const Crop& crop : crops()) bare.read(crop, part);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(crops().size()));
}

void ours(benchmark::State& state, Part part, Way way) {
  if (lacks_data(state)) return;
  OurReader ours(way);
  if (way == Way::kByIndex) ours.read_all(part);
  for ([[maybe_unused]] auto _ : state) {
    if (way == Way::kFirst) ours.forget();
    ours.read_all(part);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(crops().size()));
}

void paired(benchmark::State& state, Part part, Way way) {
  if (lacks_data(state)) return;
  BareLoop bare;
  OurReader ours(way);
  if (way == Way::kByIndex) ours.read_all(part);
  std::vector<double> ratios;  // a ratio a file, of the sums over the runs
  std::vector<std::array<double, 2>> seconds(crops().size());
  bool ours_first = false;
  for ([[maybe_unused]] auto _ : state) {
    if (way == Way::kFirst) ours.forget();
    for (std::size_t i = 0; i < crops().size(); ++i) {
      fetch(crops()[i], ours_first ? way : Way::kLibjpeg);
      const auto start = thread_cpu_time();
      ours_first ? (void)ours.read(crops()[i], part) : bare.read(crops()[i], part);
      const auto middle = thread_cpu_time();
      fetch(crops()[i], ours_first ? Way::kLibjpeg : way);
      const auto restart = thread_cpu_time();
      ours_first ? bare.read(crops()[i], part) : (void)ours.read(crops()[i], part);
      const auto end = thread_cpu_time();
      seconds[i][ours_first ? 1 : 0] += std::chrono::duration<double>(middle - start).count();
      seconds[i][ours_first ? 0 : 1] += std::chrono::duration<double>(end - restart).count();
    }
    ours_first = !ours_first;
  }
  double bare_seconds = 0;
  double our_seconds = 0;
  for (const auto& [bare_time, our_time] : seconds) {
    bare_seconds += bare_time;
    our_seconds += our_time;
    ratios.push_back(our_time / bare_time);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  state.counters["time_over_bare"] = our_seconds / bare_seconds;
  state.counters["median_file"] = ratios[ratios.size() / 2];
}

// What making the kept form of a whole image takes, once.
void recode(benchmark::State& state) {
  if (lacks_data(state)) return;
  OurReader ours(Way::kKept);
  std::size_t bytes = 0, file_bytes = 0, pixels = 0;
  for (const Crop& crop : crops()) {
    bytes += crop.recoded.size();
    file_bytes += crop.jpeg.size();
    pixels +=
        static_cast<std::size_t>(crop.size.width) * static_cast<std::size_t>(crop.size.height);
  }
  for ([[maybe_unused]] auto _ : state) {
    for (const Crop& crop : crops()) benchmark::DoNotOptimize(ours.recode(crop));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(crops().size()));
  state.counters["bytes_over_file"] = static_cast<double>(bytes) / static_cast<double>(file_bytes);
  state.counters["bytes_over_pixels"] =
      static_cast<double>(bytes) / static_cast<double>(3 * pixels);
}

constexpr std::pair<Part, const char*> kParts[] = {{Part::kRegion, "region"},
                                                   {Part::kWhole, "whole"}};
constexpr std::pair<Way, const char*> kWays[] = {{Way::kLibjpeg, "libjpeg"},
                                                 {Way::kFirst, "first"},
                                                 {Way::kWithout, "without_index"},
                                                 {Way::kByIndex, "by_index"},
                                                 {Way::kKept, "kept"}};

void register_all() {
  const auto add = [](const std::string& name, auto... arguments) {
    return benchmark::RegisterBenchmark(name.c_str(), arguments...)->Unit(benchmark::kMillisecond);
  };
  for (const auto& [part, part_name] : kParts) {
    const std::string name = part_name;
    add(name + "_bare", bare, part);
    for (const auto& [way, way_name] : kWays) {
      add(name + "_ours/" + way_name, ours, part, way);
      add(name + "_paired/" + way_name, paired, part, way)->Iterations(10);
    }
  }
  add("recode", recode);
}

bool limit_kernels(std::string_view best) {
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;  // the better it is, the lower
    if (best != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(all & -target);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace spdld::media

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (const char* const best = std::getenv("SPDLD_BENCH_TARGET");
      best != nullptr && !spdld::media::limit_kernels(best)) {
    std::fprintf(stderr, "SPDLD_BENCH_TARGET=%s: this machine has no such target\n", best);
    return 1;
  }
  spdld::media::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
