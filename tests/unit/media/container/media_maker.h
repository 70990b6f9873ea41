// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/scratch_dir.h"

namespace spdld::media::test {

// Video and audio files that FFmpeg's command line makes, and what it tells about them: the
// reference for what the daemon makes of them.
class MediaMaker {
 public:
  // Runs `ffmpeg ARGUMENTS NAME` in a directory of its own, in which files made before lie too, and
  // returns the file's bytes. A failure fails the test, and gives no bytes.
  std::vector<std::byte> make(const std::string& arguments, const std::string& name) const;
  std::vector<std::byte> bytes_of(const std::string& name) const;
  std::string path_of(const std::string& name) const { return dir_.path() + "/" + name; }
  void write(const std::string& name, const std::vector<std::byte>& bytes) const;

  // What a command of the shell prints, run in the directory.
  std::string output(const std::string& command) const;
  // Entries of `ffprobe -show_packets` or `-show_frames`: a line for each, with the values asked
  // for, as text. `stream`: "v:0".
  std::vector<std::vector<std::string>> probe(const std::string& name, const std::string& stream,
                                              const std::string& what,
                                              const std::vector<std::string>& keys) const;

 private:
  spdld::test::ScratchDir dir_;
};

// Some seconds of moving pictures, and of sound that is nowhere the same.
inline std::string moving_pictures(int frames, const std::string& options = "size=96x64:rate=25") {
  return "-f lavfi -i testsrc2=" + options + ",trim=end_frame=" + std::to_string(frames) + " ";
}
inline std::string some_sound(double seconds, int rate = 16000, const std::string& more = "") {
  return "-f lavfi -i aevalsrc='0.4*sin(2*PI*(300+200*t)*t)+0.1*sin(5000*t)':s=" +
         std::to_string(rate) + ":d=" + std::to_string(seconds) + more + " ";
}

// The mp3 file with a header that counts so many frames.
std::vector<std::byte> with_xing_frames(std::vector<std::byte> mp3, std::uint32_t frames);

// A file that is no more than this text.
inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace spdld::media::test
