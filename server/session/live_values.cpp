// SPDX-License-Identifier: Apache-2.0
#include "session/live_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text/near_names.h"
#include "delivery/memory_probe.h"
#include "spdld/wire.h"
#include "spec/scalar.h"

namespace spdld::session {
namespace {

using engine::Plan;
using job::JobLimits;

struct JobValue {
  std::string_view key;
  std::string_view range;
  std::string_view means;
  bool (*set)(JobLimits& limits, const std::string& text);  // false: not in range
  void (*copy)(JobLimits& to, const JobLimits& from);
  std::string (*text)(const JobLimits& limits, const Plan& plan);
};

template <auto kMember>
bool set_count(JobLimits& limits, const std::string& text, std::int64_t least, std::int64_t most) {
  const auto count = spec::parse_integer(text);
  if (!count || *count < least || *count > most) return false;
  limits.*kMember = static_cast<std::uint32_t>(*count);
  return true;
}

template <auto kMember>
void copy(JobLimits& to, const JobLimits& from) {
  to.*kMember = from.*kMember;
}

std::string all_or(int count) { return count == 0 ? "all" : std::to_string(count); }

constexpr std::array kJobValues{
    JobValue{.key = "fetch.concurrency",
             .range = "1 to 4096",
             .means = "rows that are fetched at once",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   return set_count<&JobLimits::fetching>(limits, text, 1, 4096);
                 },
             .copy = copy<&JobLimits::fetching>,
             .text =
                 [](const JobLimits& limits, const Plan& plan) {
                   return std::to_string(limits.fetching.value_or(
                       static_cast<std::uint32_t>(plan.fetch.concurrency)));
                 }},
    JobValue{.key = "process.concurrency",
             .range = "1 to 4096",
             .means = "rows that are in the stages behind fetch at once",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   return set_count<&JobLimits::processing>(limits, text, 1, 4096);
                 },
             .copy = copy<&JobLimits::processing>,
             .text =
                 [](const JobLimits& limits, const Plan& plan) {
                   return limits.processing ? std::to_string(*limits.processing)
                                            : all_or(plan.process.concurrency);
                 }},
    JobValue{.key = kPrefetchKey,
             .range = "2 to 64",
             .means = "batches that each rank may hold or have waiting",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   return set_count<&JobLimits::prefetch>(limits, text, wire::kMinCredits,
                                                          wire::kMaxCredits);
                 },
             .copy = copy<&JobLimits::prefetch>,
             .text =
                 [](const JobLimits& limits, const Plan& plan) {
                   return std::to_string(limits.prefetch.value_or(
                       static_cast<std::uint32_t>(plan.spec.delivery.prefetch)));
                 }},
    JobValue{.key = "weight",
             .range = "0.001 to 1000",
             .means = "share of the CPU workers while jobs compete",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   const auto weight = spec::parse_number(text);
                   if (!weight || !job::is_weight(*weight)) return false;
                   limits.weight = *weight;
                   return true;
                 },
             .copy = copy<&JobLimits::weight>,
             .text = [](const JobLimits& limits,
                        const Plan&) { return spec::show_number(limits.weight); }},
    JobValue{.key = "cpus",
             .range = "1 to 4096, or all",
             .means = "CPU workers at once",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   if (text == "all") {
                     limits.cpus.reset();
                     return true;
                   }
                   return set_count<&JobLimits::cpus>(limits, text, 1, 4096);
                 },
             .copy = copy<&JobLimits::cpus>,
             .text = [](const JobLimits& limits,
                        const Plan&) { return all_or(static_cast<int>(limits.cpus.value_or(0))); }},
    JobValue{.key = "memory",
             .range = "a size such as 2GiB, or all",
             .means = "what its arenas together may take; those that it has stay",
             .set =
                 [](JobLimits& limits, const std::string& text) {
                   const auto bytes = spec::parse_bytes(text);
                   if (text != "all" && bytes.value_or(0) == 0) return false;
                   limits.bytes = bytes;
                   return true;
                 },
             .copy = copy<&JobLimits::bytes>,
             .text =
                 [](const JobLimits& limits, const Plan&) {
                   return limits.bytes ? delivery::format_bytes(*limits.bytes) : "all";
                 }},
};

const JobValue* find(const std::string& key) {
  const auto found = std::find_if(kJobValues.begin(), kJobValues.end(),
                                  [&](const JobValue& value) { return value.key == key; });
  return found == kJobValues.end() ? nullptr : &*found;
}

Status no_such_value(const std::string& key) {
  std::vector<std::string> known;
  known.reserve(kJobValues.size());
  for (const JobValue& value : kJobValues) known.emplace_back(value.key);
  return session::no_such_value(key, known, "a job");
}

}  // namespace

bool TuneRequest::names(std::string_view key) const {
  return set.contains(std::string(key)) ||
         std::any_of(reset.begin(), reset.end(),
                     [&](const std::string& value) { return value == key || value == "all"; });
}

std::string text_of(const TuneRequest& request) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : request.set) parts.push_back(key + "=" + value);
  for (const std::string& key : request.reset) parts.push_back(key + " reset");
  return listed_names(parts);
}

Status no_such_value(const std::string& key, const std::vector<std::string>& known,
                     const std::string& of) {
  return Status(Code::kInvalidArgument, "there is no value " + spec::quote(key) + " of " + of +
                                            " that can be changed while it is in force" +
                                            hint(key, known));
}

Status not_in_range(const std::string& key, const std::string& value, const std::string& range) {
  return Status(Code::kInvalidArgument,
                key + " cannot be " + spec::quote(value) + ": it may be " + range);
}

std::vector<LiveValue> live_values(const JobLimits& limits, const JobLimits& first,
                                   const Plan& plan) {
  std::vector<LiveValue> values;
  values.reserve(kJobValues.size());
  for (const JobValue& value : kJobValues)
    values.push_back({.key = std::string(value.key),
                      .now = value.text(limits, plan),
                      .configured = value.text(first, plan),
                      .range = std::string(value.range),
                      .means = std::string(value.means)});
  return values;
}

Status tune(JobLimits& limits, const JobLimits& first, const TuneRequest& request) {
  JobLimits next = limits;
  for (const std::string& key : request.reset) {
    if (key == "all") {
      next = first;
      continue;
    }
    const JobValue* const value = find(key);
    if (value == nullptr) return no_such_value(key);
    value->copy(next, first);
  }
  for (const auto& [key, text] : request.set) {
    const JobValue* const value = find(key);
    if (value == nullptr) return no_such_value(key);
    if (!value->set(next, text)) return not_in_range(key, text, std::string(value->range));
  }
  limits = next;
  return {};
}

}  // namespace spdld::session
