// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace spdld {
namespace {

void walk_up(const std::string& root, std::string group, bool is_v1,
             const std::function<void(const Cgroup&)>& visit) {
  if (group.find("..") != std::string::npos) group.clear();
  while (group.ends_with('/')) group.pop_back();
  for (;;) {
    visit({.name = group.empty() ? "/" : group, .directory = root + group + "/", .is_v1 = is_v1});
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

// Version 2 has both in one file, "150000 100000" or "max 100000"; version 1 has -1 for none.
double quota_of(const Cgroup& group) {
  std::string quota;
  double period = 0;
  if (group.is_v1) {
    std::ifstream quota_file(group.directory + "cpu.cfs_quota_us");
    std::ifstream period_file(group.directory + "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  } else {
    std::ifstream file(group.directory + "cpu.max");
    if (!(file >> quota >> period)) return 0;
  }
  const double time = std::strtod(quota.c_str(), nullptr);  // 0 of "max"
  return time > 0 && period > 0 ? time / period : 0;
}

// Version 2 counts microseconds, version 1 nanoseconds.
std::optional<std::chrono::nanoseconds> throttled_of(const Cgroup& group) {
  std::ifstream file(group.directory + "cpu.stat");
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (group.is_v1 && name == "throttled_time") return std::chrono::nanoseconds(value);
    if (!group.is_v1 && name == "throttled_usec") return std::chrono::microseconds(value);
  }
  return std::nullopt;
}

// "some avg10=1.23 avg60=..."
std::optional<double> pressure_of(const std::string& path) {
  std::ifstream file(path);
  std::string some;
  std::string average;
  constexpr std::string_view kName = "avg10=";
  if (!(file >> some >> average) || some != "some" || !average.starts_with(kName))
    return std::nullopt;
  double percent = 0;
  const char* const last = average.data() + average.size();
  const auto [end, failed] = std::from_chars(average.data() + kName.size(), last, percent);
  if (failed != std::errc() || end != last) return std::nullopt;
  return percent / 100;
}

}  // namespace

void for_each_cgroup(const CgroupFiles& files, std::string_view controller,
                     const std::function<void(const Cgroup&)>& visit) {
  const std::string wanted = "," + std::string(controller) + ",";
  std::ifstream cgroups(files.self);
  std::string line;
  while (std::getline(cgroups, line)) {  // id:controllers:/path
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      walk_up(files.root, group, false, visit);
    } else if (("," + controllers + ",").find(wanted) != std::string::npos) {
      walk_up(files.root + "/" + std::string(controller), group, true, visit);
    }
  }
}

double cpu_quota(const CgroupFiles& files) {
  double least = 0;
  for_each_cgroup(files, "cpu", [&](const Cgroup& group) {
    const double quota = quota_of(group);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  });
  return least;
}

std::optional<std::chrono::nanoseconds> cpu_throttled(const CgroupFiles& files) {
  std::optional<std::chrono::nanoseconds> all;
  for_each_cgroup(files, "cpu", [&](const Cgroup& group) {
    if (const auto throttled = throttled_of(group))
      all = all.value_or(std::chrono::nanoseconds(0)) + *throttled;
  });
  return all;
}

std::optional<double> cpu_pressure(const CgroupFiles& files) {
  std::optional<double> found = pressure_of(files.pressure);
  for_each_cgroup(files, "cpu", [&](const Cgroup& group) {
    if (!found && !group.is_v1) found = pressure_of(group.directory + "cpu.pressure");
  });
  return found;
}

}  // namespace spdld
