// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/counted.h"
#include "ctl/consume.h"
#include "ctl/failure.h"
#include "ctl/interrupt.h"

namespace spdld::ctl {
namespace {

using Clock = std::chrono::steady_clock;

std::string machine() {
  std::string cpu = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (const std::size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos) {
      cpu = line.substr(colon + 2);
      break;
    }
  }
  utsname kernel{};
  ::uname(&kernel);
  return fmt::format("{}, {}, Linux {}", cpu,
                     counted(static_cast<std::uint64_t>(::sysconf(_SC_NPROCESSORS_ONLN)), "cpu"),
                     kernel.release);
}

struct Percentiles {
  double p50_us = 0;
  double p99_us = 0;
};

Percentiles percentiles(std::vector<double>& samples_us) {
  if (samples_us.empty()) return {};
  std::sort(samples_us.begin(), samples_us.end());
  const auto at = [&](double share) {
    return samples_us[static_cast<std::size_t>(share * static_cast<double>(samples_us.size() - 1))];
  };
  return {at(0.5), at(0.99)};
}

}  // namespace

void bench_handoff(const HandoffOptions& options, std::ostream& out) {
  const Interrupt interrupt;
  LoaderOptions loader_options = options.loader;
  loader_options.on_wait = [&] {
    if (interrupt.requested()) throw Interrupted();
  };
  Loader loader = Loader::open(std::move(loader_options));

  std::vector<double> all_us;
  std::vector<double> ready_us;
  all_us.reserve(options.batches);
  ready_us.reserve(options.batches);
  Clock::time_point begun = Clock::now();
  std::uint64_t seen = 0;
  std::uint64_t empty_epochs = 0;
  try {
    while (all_us.size() < options.batches && empty_epochs < 2 && !interrupt.requested()) {
      if (seen == options.warm_up) begun = Clock::now();
      const std::uint64_t waits = loader.stats().waits;
      const Clock::time_point asked = Clock::now();
      std::optional<Batch> batch = loader.next();
      const std::chrono::duration<double, std::micro> took = Clock::now() - asked;
      if (!batch) {
        ++empty_epochs;
        continue;
      }
      empty_epochs = 0;
      batch->release();
      if (options.pause_us > 0) ::usleep(options.pause_us);
      if (++seen <= options.warm_up) continue;
      all_us.push_back(took.count());
      if (loader.stats().waits == waits) ready_us.push_back(took.count());
    }
  } catch (const Interrupted&) {
    // What was measured so far is printed.
  }
  const std::chrono::duration<double> took = Clock::now() - begun;
  loader.close();
  if (all_us.empty()) {
    throw Failure(kFailed, fmt::format("the job gave {}, all spent on the warm-up of {}: nothing "
                                       "was measured",
                                       counted(seen, "batch", "batches"), options.warm_up));
  }

  const double rate = static_cast<double>(all_us.size()) / took.count();
  const Percentiles all = percentiles(all_us);
  const Percentiles ready = percentiles(ready_us);
  if (options.json) {
    out << nlohmann::ordered_json{{"batches", all_us.size()},     {"batches_per_s", rate},
                                  {"next_p50_us", all.p50_us},    {"next_p99_us", all.p99_us},
                                  {"ready", ready_us.size()},     {"ready_p50_us", ready.p50_us},
                                  {"ready_p99_us", ready.p99_us}, {"machine", machine()}}
               .dump(2)
        << '\n';
    return;
  }
  out << fmt::format("{}, {:.0f} batches/s (released at once, not read)\n",
                     counted(all_us.size(), "batch", "batches"), rate);
  out << fmt::format("next()           p50 {:.2f} us, p99 {:.2f} us\n", all.p50_us, all.p99_us);
  out << fmt::format(
      "next(), ready    p50 {:.2f} us, p99 {:.2f} us, of {} ({:.0f} %)\n", ready.p50_us,
      ready.p99_us, counted(ready_us.size(), "call"),
      100.0 * static_cast<double>(ready_us.size()) / static_cast<double>(all_us.size()));
  out << fmt::format("on {}\n", machine());
}

}  // namespace spdld::ctl
