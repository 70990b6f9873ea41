// SPDX-License-Identifier: Apache-2.0
// The least that bringing rows into a batch can cost: preadv2() and memcpy() of rows at random, on
// every thread, of files in the page cache; nothing is parsed, and nothing delivered. Prints one
// line of JSON.
//
//   rows_floor DIR SECONDS THREADS SEED BATCH ROW_BYTES FIRST STRIDE ROWS_A_READ
//
// In each file of DIR the first row begins at byte FIRST, and the next ones STRIDE bytes further
// each. With STRIDE 0, a file holds one row, and is opened for it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace {

struct Shape {
  std::size_t batch = 0;
  std::size_t row_bytes = 0;
  std::size_t first = 0;
  std::size_t stride = 0;
  std::size_t rows_a_read = 1;
};

// A run of neighbours in a file, which one read brings.
struct Part {
  int file = -1;
  std::size_t offset = 0;
  std::size_t rows = 0;
};

// As the daemon does: without waiting at first.
void read(int file, std::size_t offset, std::vector<std::byte>& to, std::size_t bytes) {
  const iovec part{to.data(), bytes};
  const auto read_all = [&](int flags) {
    return preadv2(file, &part, 1, static_cast<off_t>(offset), flags) ==
           static_cast<ssize_t>(bytes);
  };
  SPDLD_CHECK(read_all(RWF_NOWAIT) || read_all(0));
}

int open_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SPDLD_CHECK(file >= 0);
  return file;
}

// Of files that hold many rows, which stay open.
std::vector<Part> parts_of(const std::vector<std::string>& paths, const Shape& shape) {
  std::vector<Part> parts;
  for (const std::string& path : paths) {
    const int file = open_file(path);
    struct stat found {};
    SPDLD_CHECK(fstat(file, &found) == 0);
    const auto size = static_cast<std::size_t>(found.st_size);
    for (std::size_t at = shape.first; at + shape.stride <= size;
         at += shape.stride * shape.rows_a_read) {
      const std::size_t rows = std::min(shape.rows_a_read, (size - at) / shape.stride);
      parts.push_back({.file = file, .offset = at, .rows = rows});
    }
  }
  return parts;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One thread's batch, filled again and again.
class Filler {
 public:
  explicit Filler(const Shape& shape)
      : shape_(shape),
        batch_(shape.batch * shape.row_bytes),
        buffer_(std::max(shape.row_bytes, shape.stride * shape.rows_a_read)) {}

  void put(const Part& part) {
    // Between its rows lies what is read with them.
    read(part.file, part.offset, buffer_, (part.rows - 1) * shape_.stride + shape_.row_bytes);
    for (std::size_t row = 0; row < part.rows; ++row) put_row(row * shape_.stride);
  }
  void put_file(const std::string& path) {
    const int file = open_file(path);
    read(file, shape_.first, buffer_, shape_.row_bytes);
    close(file);
    put_row(0);
  }
  std::uint64_t rows() const { return rows_; }

 private:
  void put_row(std::size_t from) {
    std::memcpy(&batch_[rows_ % shape_.batch * shape_.row_bytes], &buffer_[from], shape_.row_bytes);
    ++rows_;
  }

  const Shape shape_;
  std::vector<std::byte> batch_;
  std::vector<std::byte> buffer_;
  std::uint64_t rows_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(stderr,
                 "usage: rows_floor DIR SECONDS THREADS SEED BATCH ROW_BYTES FIRST STRIDE "
                 "ROWS_A_READ\n");
    return 2;
  }
  const auto number = [&](int at) { return std::strtoull(argv[at], nullptr, 10); };
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    paths.push_back(entry.path());
  const double seconds = std::strtod(argv[2], nullptr);
  const std::uint64_t threads = number(3);
  const std::uint64_t seed = number(4);
  const Shape shape{.batch = number(5),
                    .row_bytes = number(6),
                    .first = number(7),
                    .stride = number(8),
                    .rows_a_read = number(9)};
  const std::vector<Part> parts = shape.stride == 0 ? std::vector<Part>() : parts_of(paths, shape);
  SPDLD_CHECK(!paths.empty() && (shape.stride == 0 || !parts.empty()));

  std::atomic<std::uint64_t> rows{0};
  const double cpu_before = cpu_seconds();
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  {
    std::vector<std::jthread> workers;
    for (std::uint64_t worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&, worker] {
        Filler filler(shape);
        for (std::uint64_t draw = 0; draw % 64 != 0 || elapsed() < seconds; ++draw) {
          const std::uint64_t at = spdld::mix64(seed + worker, draw);
          if (shape.stride == 0)
            filler.put_file(paths[at % paths.size()]);
          else
            filler.put(parts[at % parts.size()]);
        }
        rows += filler.rows();
      });
    }
  }
  const double wall_s = elapsed();
  const auto made = static_cast<double>(rows.load());
  std::printf(R"({"rows_per_s": %.2f, "cpu_ms_per_row": %.6f, "rows": %.0f})"
              "\n",
              made / wall_s, 1000 * (cpu_seconds() - cpu_before) / made, made);
  return 0;
}
