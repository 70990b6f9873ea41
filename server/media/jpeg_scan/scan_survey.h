// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "media/jpeg_scan/lane_kernels.h"
#include "media/jpeg_scan/scan_tables.h"
#include "media/jpeg_scan/whole_scan.h"

namespace spdld::media {

// Makes the index of a baseline scan by reading it from many places at once, in the lanes of
// AVX-512's vectors. All but the first lane begin in the midst of a code and read nonsense, but
// mostly come upon the begin of an MCU before long, and from there on read what one reader would
// have read. Which MCU that was is known when the lane before has come to the same bit: it has
// joined then, and stops. A lane that joins nowhere in the next one's part reads on to the part
// behind it. Used by one thread.
class ScanSurvey {
 public:
  // Of scans of so many bytes: in shorter ones the lanes would mostly look for MCUs.
  static constexpr std::size_t kLeastBytes = 12 << 10;
  static constexpr std::size_t kLaneBytes = 1 << 10;  // of each lane, at least
  static bool is_available() { return has_scan_lanes(); }

  // Memory that it takes at most for a scan of so many MCUs.
  static std::uint64_t most_bytes(std::uint64_t mcus) {
    return 2 * sizeof(Begin) * most_begins(mcus);  // a vector grows to twice its size
  }

  // The entries of the index, `step` MCUs apart (SeekGrid), which are those of `scan`. None: it is
  // not sound, or one of which this is not to be found out so: ScanPass tells.
  std::span<const std::uint64_t> run(const ScanTables& tables, WholeScan& scan, int step);

 private:
  // The begin of an MCU, of whatever number.
  struct Begin {
    std::uint32_t bit = 0;
    std::array<std::uint32_t, 3> dc{};  // sums since the lane's first bit
  };
  struct Lane {
    std::uint32_t end = 0;  // of its part
    std::size_t next = 0;   // the lane that it is to join
    // Those that it has come to, since it last met a code that does not exist.
    std::vector<Begin> begins;
    // At which of them another lane has joined. Those from there on follow each other.
    std::optional<std::size_t> joined_at;
  };

  // Begins in all lanes, also of MCUs that are none. A scan that has more of them is not read on.
  static std::uint64_t most_begins(std::uint64_t mcus) { return 2 * mcus + 1024; }

  void begin_lanes();
  // False: the scan is not sound.
  bool read();
  void take_log();
  // Reads a symbol that does not fit a look. False: it does not exist, and the lane was joined.
  bool read_symbol(std::size_t lane);
  // The lane has come to an MCU's begin.
  void add(std::size_t lane, const Begin& begin);
  void stop(std::size_t lane) { busy_ &= ~(1u << lane); }
  // False: there are more or fewer MCUs, or something behind them.
  bool add_entries(const ScanTables& tables, int step);

  WholeScan* scan_ = nullptr;
  LaneTables tables_;
  SurveyState state_;
  SurveyLog log_;
  std::uint32_t busy_ = 0;  // lanes that have not joined another
  std::size_t count_ = 0;   // of lanes_
  std::uint64_t room_ = 0;  // for so many more begins
  std::array<Lane, kSurveyLanes> lanes_;
};

}  // namespace spdld::media
