// SPDX-License-Identifier: Apache-2.0
// The least that loading these JPEGs can cost: libjpeg-turbo alone, every core busy, the files in
// memory, no resize, nothing delivered. Prints one line of JSON.
//
//   images_floor full|region DIR SECONDS THREADS SEED
//
// `full` decodes whole images; `region` decodes what random_resized_crop draws, by that op itself,
// cut to the boundaries that jpeg_crop_scanline() wants.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <jpeglib.h>  // needs <cstdio> before it

#include "base/rng.h"
#include "engine/plan/builtin_ops.h"
#include "op/op.h"

namespace {

using spdld::Geometry;
using spdld::KeyedRng;
using spdld::Rect;

struct Fault {
  jpeg_error_mgr base;
  jmp_buf jump;
};

// Draws what is decoded of an image; null: all of it.
using Crop = std::unique_ptr<spdld::GeometryOp>;

class Floor {
 public:
  explicit Floor(Crop crop) : crop_(std::move(crop)) {
    jpeg_.err = jpeg_std_error(&fault_.base);
    fault_.base.error_exit = [](j_common_ptr info) {
      longjmp(reinterpret_cast<Fault*>(info->err)->jump, 1);
    };
    fault_.base.output_message = [](j_common_ptr) {};
    jpeg_create_decompress(&jpeg_);
  }
  ~Floor() { jpeg_destroy_decompress(&jpeg_); }
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;

  // False for what is no JPEG that becomes RGB.
  bool decode(const std::vector<unsigned char>& file, KeyedRng rng) {
    if (setjmp(fault_.jump) != 0) {
      jpeg_abort_decompress(&jpeg_);
      return false;
    }
    jpeg_mem_src(&jpeg_, file.data(), file.size());
    jpeg_read_header(&jpeg_, TRUE);
    jpeg_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    Rect region{0, 0, static_cast<int>(jpeg_.output_width), static_cast<int>(jpeg_.output_height)};
    if (crop_ != nullptr) {
      Geometry chain = Geometry::identity(region.size());
      if (!crop_->append_to(chain, rng)) return false;
      region = chain.crop;
    }
    read(region);
    jpeg_abort_decompress(&jpeg_);
    return true;
  }

 private:
  void read(const Rect& region) {
    if (region.width < static_cast<int>(jpeg_.output_width)) {
      auto x = static_cast<JDIMENSION>(region.x);
      auto width = static_cast<JDIMENSION>(region.width);
      jpeg_crop_scanline(&jpeg_, &x, &width);
    }
    row_.resize(std::size_t{jpeg_.output_width} * 3);
    if (region.y > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(region.y));
    JSAMPROW row = row_.data();
    for (int y = 0; y < region.height; ++y) jpeg_read_scanlines(&jpeg_, &row, 1);
  }

  Crop crop_;
  jpeg_decompress_struct jpeg_{};
  Fault fault_{};
  std::vector<unsigned char> row_;
};

Crop make_crop() {
  static const spdld::Registry kOps = spdld::engine::builtin_ops();
  std::map<std::string, spdld::ParamValue> values;
  for (const spdld::ParamInfo& param : kOps.find("random_resized_crop")->params) {
    if (param.default_value) values.emplace(param.name, *param.default_value);
  }
  values["size"] = std::vector<std::int64_t>{224, 224};
  auto op = kOps.find("random_resized_crop")->make(spdld::Params(std::move(values)));
  if (!op) {
    std::fprintf(stderr, "%s\n", op.error().message().c_str());
    std::exit(1);
  }
  return Crop(dynamic_cast<spdld::GeometryOp*>(op->release()));
}

std::vector<std::vector<unsigned char>> read_files(const std::string& root) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           root, std::filesystem::directory_options::follow_directory_symlink)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<unsigned char>> files;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return files;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: images_floor full|region DIR SECONDS THREADS SEED\n");
    return 2;
  }
  const bool region = std::string(argv[1]) == "region";
  const auto files = read_files(argv[2]);
  const double seconds = std::strtod(argv[3], nullptr);
  const int threads = std::atoi(argv[4]);
  const std::uint64_t seed = std::strtoull(argv[5], nullptr, 10);
  if (files.empty()) {
    std::fprintf(stderr, "no files under %s\n", argv[2]);
    return 1;
  }

  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> decoded{0};
  const double cpu_before = cpu_seconds();
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        Floor floor(region ? make_crop() : nullptr);
        std::uint64_t mine = 0;
        while (elapsed() < seconds) {
          const std::uint64_t position = next++;
          const auto& file = files[position % files.size()];
          mine += floor.decode(file, KeyedRng(spdld::mix64(seed, position))) ? 1 : 0;
        }
        decoded += mine;
      });
    }
  }
  const double wall_s = elapsed();
  const auto images = static_cast<double>(decoded.load());
  std::printf(R"({"images_per_s": %.2f, "cpu_ms_per_image": %.4f, "images": %.0f})"
              "\n",
              images / wall_s, 1000 * (cpu_seconds() - cpu_before) / images, images);
  return 0;
}
