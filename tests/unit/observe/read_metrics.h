// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace spdld::observe {

// What a text in Prometheus' format says.
struct ReadMetrics {
  using Labels = std::map<std::string, std::string>;
  std::map<std::string, std::string> help;
  std::map<std::string, std::string> type;
  std::map<std::string, std::map<Labels, double>> samples;

  // Whether it is the name of one of a histogram's samples.
  bool is_of_histogram(const std::string& name) const {
    const auto found = type.find(name.substr(0, name.rfind('_')));
    return found != type.end() && found->second == "histogram";
  }
  // NaN: there is no such sample.
  double value(const std::string& name, const Labels& labels = {}) const {
    const auto metric = samples.find(name);
    if (metric == samples.end()) return std::nan("");
    const auto sample = metric->second.find(labels);
    return sample == metric->second.end() ? std::nan("") : sample->second;
  }
};

// One line of the format, read from its begin. A mistake in it fails the test.
class MetricLine {
 public:
  explicit MetricLine(std::string_view line) : line_(line), rest_(line_) {}

  std::string name() {
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '_'))
      ++length;
    EXPECT_GT(length, 0u) << line_;
    return take(length);
  }
  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void expect(std::string_view text) { EXPECT_TRUE(skip(text)) << text << " in " << line_; }
  // What stands between quotation marks.
  std::string quoted() {
    expect("\"");
    std::string value;
    while (!rest_.empty() && !rest_.starts_with('"')) {
      if (skip("\\n")) {
        value += '\n';
      } else if (skip("\\\"")) {
        value += '"';
      } else if (skip("\\\\")) {
        value += '\\';
      } else {
        EXPECT_NE(rest_[0], '\\') << line_;
        value += take(1);
      }
    }
    expect("\"");
    return value;
  }
  std::string rest() { return take(rest_.size()); }

 private:
  std::string take(std::size_t length) {
    const std::string taken(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return taken;
  }

  const std::string line_;
  std::string_view rest_;
};

inline ReadMetrics read_metrics(const std::string& text) {
  EXPECT_TRUE(text.empty() || text.ends_with('\n'));
  ReadMetrics read;
  std::istringstream lines(text);
  for (std::string whole; std::getline(lines, whole);) {
    MetricLine line(whole);
    if (line.skip("# HELP ")) {
      const std::string name = line.name();
      line.expect(" ");
      EXPECT_TRUE(read.help.emplace(name, line.rest()).second) << whole;
    } else if (line.skip("# TYPE ")) {
      const std::string name = line.name();
      line.expect(" ");
      EXPECT_TRUE(read.type.emplace(name, line.rest()).second) << whole;
    } else {
      const std::string name = line.name();
      EXPECT_TRUE(read.type.contains(name) || read.is_of_histogram(name)) << whole;
      ReadMetrics::Labels labels;
      if (line.skip("{")) {
        do {
          const std::string label = line.name();
          line.expect("=");
          EXPECT_TRUE(labels.emplace(label, line.quoted()).second) << whole;
        } while (line.skip(","));
        line.expect("}");
      }
      line.expect(" ");
      const std::string number = line.rest();
      char* end = nullptr;
      const double value = std::strtod(number.c_str(), &end);
      EXPECT_TRUE(end != number.c_str() && *end == '\0') << whole;
      EXPECT_TRUE(read.samples[name].emplace(labels, value).second) << "twice: " << whole;
    }
  }
  return read;
}

}  // namespace spdld::observe
