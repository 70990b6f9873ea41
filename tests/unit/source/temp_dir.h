// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace spdld::source {

// A directory that is gone with everything in it when the test ends.
class TempDir {
 public:
  TempDir() {
    std::string path = (std::filesystem::temp_directory_path() / "spdld-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = std::filesystem::canonical(path).string();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& below) const { return path_ + "/" + below; }

  void directory(const std::string& below) const {
    std::filesystem::create_directories(path(below));
  }
  void file(const std::string& below, const std::string& content = "x") const {
    std::filesystem::create_directories(std::filesystem::path(path(below)).parent_path());
    std::ofstream(path(below), std::ios::binary) << content;
  }
  void link(const std::string& target, const std::string& below) const {
    std::filesystem::create_directories(std::filesystem::path(path(below)).parent_path());
    std::filesystem::create_symlink(target, path(below));
  }
  void remove(const std::string& below) const { std::filesystem::remove_all(path(below)); }

  // Makes every directory old enough for its time stamp to be trusted.
  void age() const {
    age_one(path_);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_directory() && !entry.is_symlink()) age_one(entry.path().string());
    }
  }

 private:
  static void age_one(const std::string& path) {
    const timespec times[2] = {{.tv_sec = 1'600'000'000, .tv_nsec = 0},
                               {.tv_sec = 1'600'000'000, .tv_nsec = 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  std::string path_;
};

}  // namespace spdld::source
