// SPDX-License-Identifier: Apache-2.0
#include "observe/exposition.h"

#include <prometheus/text_serializer.h>

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

}  // namespace

void Exposition::counter(std::string_view name, std::string_view help, double value,
                         Labels labels) {
  SPDLD_CHECK(name.ends_with(kCounterEnd));
  add(name, {.help = help, .is_counter = true}, value, std::move(labels));
}

void Exposition::gauge(std::string_view name, std::string_view help, double value, Labels labels) {
  SPDLD_CHECK(!name.ends_with(kCounterEnd));
  add(name, {.help = help, .is_counter = false}, value, std::move(labels));
}

void Exposition::add(std::string_view name, const Metric& metric, double value, Labels labels) {
  for (auto& [label, text] : labels) text = label_value(text);
  Metric& known = metrics_.try_emplace(name, metric).first->second;
  known.samples[std::move(labels)] += value;
}

std::string Exposition::text() const {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, metric] : metrics_) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = metric.help;
    family.type =
        metric.is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    for (const auto& [labels, value] : metric.samples) {
      prometheus::ClientMetric& sample = family.metric.emplace_back();
      for (const auto& [label, text] : labels) sample.label.push_back({std::string(label), text});
      (metric.is_counter ? sample.counter.value : sample.gauge.value) = value;
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace spdld::observe
