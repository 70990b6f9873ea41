// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spdld::observe {

// Name and value. Values may be any bytes; those that are no UTF-8, and control characters but for
// the line feed, are written as "\xNN".
using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Metrics with their samples of one moment, which text() writes in Prometheus' text format. The
// format allows one sample of a metric and its labels: those that are added with the same labels
// are summed. A plain value, for one thread; names, help and the names of labels are literals.
class Exposition {
 public:
  // The value only grows while what it counts is there; `name` ends with "_total".
  void counter(std::string_view name, std::string_view help, double value, Labels labels = {});
  // `name` does not.
  void gauge(std::string_view name, std::string_view help, double value, Labels labels = {});
  // How many values lay at most at the first bound, how many above it and at most at the second
  // one, and at last how many above all; with the sum of them all. `name` does not end so either,
  // and has the same bounds each time.
  void histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                 std::span<const std::uint64_t> counts, double sum, Labels labels = {});

  std::string text() const;  // by name

 private:
  enum class Kind { kCounter, kGauge, kHistogram };
  struct Sample {
    double value = 0;                        // of a histogram: the sum
    std::vector<std::uint64_t> counts = {};  // of a histogram
  };
  struct Metric {
    std::string_view help;
    Kind kind{};
    std::vector<double> bounds = {};  // of a histogram
    std::map<Labels, Sample> samples = {};
  };
  Sample& add(std::string_view name, const Metric& metric, double value, Labels labels);

  std::map<std::string_view, Metric> metrics_;
};

}  // namespace spdld::observe
