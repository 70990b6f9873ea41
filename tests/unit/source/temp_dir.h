// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/support/scratch_dir.h"

namespace spdld::source {

// A scratch directory in which a test lays out a dataset: its path is free of links.
class TempDir {
 public:
  const std::string& path() const { return path_; }
  std::string path(const std::string& below) const { return path_ + "/" + below; }

  void directory(const std::string& below) const {
    std::filesystem::create_directories(path(below));
  }
  void file(const std::string& below, const std::string& content = "x") const {
    scratch_.write(below, content);
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

  const test::ScratchDir scratch_;
  const std::string path_ = std::filesystem::canonical(scratch_.path()).string();
};

}  // namespace spdld::source
