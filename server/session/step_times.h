// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace spdld::session {

// The times of a training loop's steps: from one batch that it gives back to the next one of the
// same epoch, as it may validate between epochs. Steps are timed in runs. A value.
class StepTimes {
 public:
  struct Given {
    std::chrono::nanoseconds at{0};
    std::uint64_t epoch = 0;
  };

  // Keeps the first `most` steps.
  explicit StepTimes(std::size_t most) : most_(most) {}

  // A run begins with the next batch. Steps that end with one of its first `left_out` batches do
  // not count: they are not those of a training that runs.
  void begin(std::size_t left_out);
  // Steps do not count until begin().
  void end() { counting_ = false; }
  // No step counts any more.
  void forget() { steps_.clear(); }
  void add(const Given& given);

  std::size_t count() const { return steps_.size(); }
  // The median of the means of kBurst steps, as batches come in bursts; none: no step counts.
  std::optional<double> typical_s() const;
  // The loop has given nothing back for four steps since begin(), and for a second. Not known, so
  // false, before there is a batch behind those that are left out.
  bool stands_still(std::chrono::nanoseconds now) const;

  static constexpr std::size_t kBurst = 8;

 private:
  std::size_t most_;
  std::vector<double> steps_;  // that count, of all runs
  bool counting_ = false;
  std::size_t left_out_ = 0;
  std::size_t batches_ = 0;        // of this run
  std::optional<Given> last_;      // of this run
  std::vector<double> run_steps_;  // the first `most_` of this run, whether or not they count
};

}  // namespace spdld::session
