// SPDX-License-Identifier: Apache-2.0
#include "live_config.h"

#include <algorithm>
#include <utility>

#include "spec/scalar.h"

namespace spdld {
namespace {

constexpr std::string_view kSizeOrShare =
    "a size such as 2GiB, or a share of the memory such as 10%";

// As the configuration takes it.
std::string text_of(const spec::MemoryBound& bound) {
  if (bound.fraction) return spec::show_number(*bound.fraction * 100) + "%";
  std::uint64_t size = bound.bytes;
  for (const char* const unit : {"", "KiB", "MiB", "GiB", "TiB"}) {
    if (size == 0 || size % 1024 != 0) return std::to_string(size) + unit;
    size /= 1024;
  }
  return std::to_string(bound.bytes);
}

std::string text_of(const std::optional<int>& threads) {
  return threads ? std::to_string(*threads) : "auto";
}

}  // namespace

std::uint64_t bytes_of(const spec::MemoryBound& bound, std::uint64_t whole_bytes) {
  if (!bound.fraction) return bound.bytes;
  return static_cast<std::uint64_t>(*bound.fraction * static_cast<double>(whole_bytes));
}

std::uint64_t bytes_of(const spec::MemoryBound& bound) {
  return bound.fraction ? bytes_of(bound, delivery::memory_total()) : bound.bytes;
}

unsigned cpu_threads_of(const spec::ExecutorConfig& config) {
  return config.cpu_threads ? static_cast<unsigned>(*config.cpu_threads) : engine::available_cpus();
}

std::map<std::string, std::string> live_texts(const spec::DaemonConfig& config) {
  return {{"executor.cpu_threads", text_of(config.executor.cpu_threads)},
          {"executor.io_threads", std::to_string(config.executor.io_threads)},
          {"cache.ram", text_of(config.cache.ram)},
          {"decoder.index", text_of(config.decoder.index)},
          {"arena.budget", text_of(config.arena.budget)}};
}

std::vector<session::DaemonValue> live_values(const spec::DaemonConfig& config, LiveParts parts) {
  // A text is read as the command line's --set reads it.
  using Setting = session::DaemonValue::Setting;
  using Apply = std::function<Status(const spec::DaemonConfig& said)>;
  const auto value = [](std::string key, std::string range, std::string means,
                        std::function<std::string()> now, Apply apply, Apply check = nullptr) {
    auto read = [key, range, apply = std::move(apply),
                 check = std::move(check)](const std::string& text) -> Result<Setting> {
      const auto said = spec::load_daemon_config("", {key + "=" + text});
      if (!said || (check && !check(*said).ok()))
        return tl::unexpected<Status>(session::not_in_range(key, text, range));
      return [apply, said = *said] { return apply(said); };
    };
    return session::DaemonValue{.key = std::move(key),
                                .range = std::move(range),
                                .means = std::move(means),
                                .now = std::move(now),
                                .read = std::move(read)};
  };
  const std::string most = std::to_string(parts.executor.most_threads());
  const std::string size(kSizeOrShare);
  return {
      value(
          "executor.cpu_threads", "1 to " + most + ", or auto", "CPU workers",
          [&executor = parts.executor] { return std::to_string(executor.threads()); },
          [&executor = parts.executor](const spec::DaemonConfig& said) {
            return executor.set_threads(cpu_threads_of(said.executor));
          },
          [&executor = parts.executor](const spec::DaemonConfig& said) -> Status {
            if (cpu_threads_of(said.executor) <= executor.most_threads()) return {};
            return Status(Code::kInvalidArgument, "more than there can be");
          }),
      value(
          "executor.io_threads", "1 to 1024", "most threads that wait for storage",
          [&io = parts.io] { return std::to_string(io.most_threads()); },
          [&io = parts.io](const spec::DaemonConfig& said) -> Status {
            io.set_threads(said.executor.io_threads);
            return {};
          }),
      value(
          "cache.ram", size,
          "what all sample caches in memory together may take; those in use stay",
          [&caches = parts.caches] { return delivery::format_bytes(caches.ram()); },
          [&caches = parts.caches](const spec::DaemonConfig& said) -> Status {
            caches.set_ram(bytes_of(said.cache.ram));
            return {};
          }),
      value(
          "decoder.index", size, "memory for indexes of JPEG files; what is known stays",
          [&indexes = parts.seek_indexes] {
            return delivery::format_bytes(indexes.snapshot().limit_bytes);
          },
          [&indexes = parts.seek_indexes](const spec::DaemonConfig& said) -> Status {
            indexes.set_limit(bytes_of(said.decoder.index));
            return {};
          }),
      value(
          "arena.budget", size, "what all arenas together may take; those in use stay",
          [&budget = parts.budget] { return delivery::format_bytes(budget.limit_bytes()); },
          [&budget = parts.budget, &arenas = parts.arenas,
           share = config.limits.arena](const spec::DaemonConfig& said) -> Status {
            const std::uint64_t bytes = bytes_of(said.arena.budget);
            budget.set_limit(bytes, bytes_of(share, bytes));
            if (budget.used_bytes() > budget.limit_bytes()) arenas.release_idle();
            return {};
          }),
  };
}

}  // namespace spdld
