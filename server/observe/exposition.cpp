// SPDX-License-Identifier: Apache-2.0
#include "observe/exposition.h"

#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>

#include "base/check.h"
#include "base/text/printable.h"

namespace spdld::observe {
namespace {

constexpr std::string_view kCounterEnd = "_total";

// Line by line: the format has an escape for the line feed.
std::string label_value(std::string_view text) {
  std::string value;
  while (true) {
    const std::size_t end = text.find('\n');
    value += printable(text.substr(0, end));
    if (end == std::string_view::npos) return value;
    value += '\n';
    text.remove_prefix(end + 1);
  }
}

// The format's counts are of all values up to a bound.
prometheus::ClientMetric::Histogram histogram_of(const std::vector<double>& bounds,
                                                 const std::vector<std::uint64_t>& counts,
                                                 double sum) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_sum = sum;
  for (std::size_t at = 0; at < counts.size(); ++at) {
    histogram.sample_count += counts[at];
    histogram.bucket.push_back(
        {.cumulative_count = histogram.sample_count,
         .upper_bound = at < bounds.size() ? bounds[at] : std::numeric_limits<double>::infinity()});
  }
  return histogram;
}

}  // namespace

void Exposition::counter(std::string_view name, std::string_view help, double value,
                         Labels labels) {
  SPDLD_CHECK(name.ends_with(kCounterEnd));
  add(name, {.help = help, .kind = Kind::kCounter}, value, std::move(labels));
}

void Exposition::gauge(std::string_view name, std::string_view help, double value, Labels labels) {
  SPDLD_CHECK(!name.ends_with(kCounterEnd));
  add(name, {.help = help, .kind = Kind::kGauge}, value, std::move(labels));
}

void Exposition::histogram(std::string_view name, std::string_view help,
                           std::span<const double> bounds, std::span<const std::uint64_t> counts,
                           double sum, Labels labels) {
  SPDLD_CHECK(!name.ends_with(kCounterEnd) && counts.size() == bounds.size() + 1);
  Sample& sample =
      add(name, {.help = help, .kind = Kind::kHistogram, .bounds = {bounds.begin(), bounds.end()}},
          sum, std::move(labels));
  sample.counts.resize(counts.size());
  for (std::size_t at = 0; at < counts.size(); ++at) sample.counts[at] += counts[at];
}

Exposition::Sample& Exposition::add(std::string_view name, const Metric& metric, double value,
                                    Labels labels) {
  for (auto& [label, text] : labels) text = label_value(text);
  Metric& known = metrics_.try_emplace(name, metric).first->second;
  Sample& sample = known.samples[std::move(labels)];
  sample.value += value;
  return sample;
}

std::string Exposition::text() const {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, metric] : metrics_) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = metric.help;
    for (const auto& [labels, sample] : metric.samples) {
      prometheus::ClientMetric& told = family.metric.emplace_back();
      for (const auto& [label, text] : labels) told.label.push_back({std::string(label), text});
      switch (metric.kind) {
        case Kind::kCounter:
          family.type = prometheus::MetricType::Counter;
          told.counter.value = sample.value;
          break;
        case Kind::kGauge:
          family.type = prometheus::MetricType::Gauge;
          told.gauge.value = sample.value;
          break;
        case Kind::kHistogram:
          family.type = prometheus::MetricType::Histogram;
          told.histogram = histogram_of(metric.bounds, sample.counts, sample.value);
          break;
      }
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace spdld::observe
