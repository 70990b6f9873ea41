// SPDX-License-Identifier: Apache-2.0
#include "spec/daemon_config.h"

#include <arpa/inet.h>
#include <glob.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/users/user_database.h"
#include "spec/daemon_shape.h"
#include "spec/extends.h"
#include "spec/overrides.h"
#include "spec/parse.h"
#include "spec/scalar.h"
#include "spec/yaml_node.h"

namespace spdld::spec {
namespace {

using Json = nlohmann::json;

constexpr int kMaxCpu = 4095;

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// Where a default has no node of its own, it is the whole file that is named.
const Node& child(const Node& node, const char* key) {
  const Node* found = node.find(key);
  return found == nullptr ? node : *found;
}

const Node& item(const Node& list, std::size_t i) {
  return i < list.items.size() ? list.items[i] : list;
}

Result<std::vector<std::string>> read_paths(const Node& node, const Json& value,
                                            const std::string& name) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < value.size(); ++i) {
    SPDLD_ASSIGN(std::string path,
                 absolute_path(item(node, i), name + "[" + std::to_string(i) + "]",
                               value[i].get<std::string>()));
    paths.push_back(std::move(path));
  }
  return paths;
}

Result<std::string> read_runtime_dir(const Node& node, const Json& value) {
  SPDLD_ASSIGN(std::string path, absolute_path(node, "runtime_dir", value.get<std::string>()));
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - sizeof "/control.sock";
  if (path.size() > kLongest) {
    return tl::unexpected<Status>(node.fail(
        "runtime_dir: " + std::to_string(path.size()) +
        " bytes are too long for the sockets in it; use at most " + std::to_string(kLongest)));
  }
  return path;
}

std::optional<int> parse_cpu(std::string_view text) {
  const std::optional<std::int64_t> number = parse_integer(text);
  if (!number || *number < 0 || *number > kMaxCpu) return std::nullopt;
  return static_cast<int>(*number);
}

// "0-3,8".
std::optional<std::vector<int>> parse_cpus(std::string_view text) {
  std::bitset<kMaxCpu + 1> named;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view range = text.substr(0, comma);
    const std::size_t dash = range.find('-');
    const std::optional<int> first = parse_cpu(range.substr(0, dash));
    const std::optional<int> last = dash == range.npos ? first : parse_cpu(range.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) named.set(static_cast<std::size_t>(cpu));
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu <= kMaxCpu; ++cpu) {
    if (named.test(static_cast<std::size_t>(cpu))) cpus.push_back(cpu);
  }
  return cpus;
}

MemoryBound read_bound(const Json& value) {
  if (!value.is_number_unsigned()) return {.fraction = value.get<double>()};
  return {.fraction = std::nullopt, .bytes = value.get<std::uint64_t>()};
}

Result<ExecutorConfig> read_executor(const Node& node, const Json& value) {
  ExecutorConfig executor;
  const Json& threads = value.at("cpu_threads");
  if (threads.is_number()) executor.cpu_threads = threads.get<int>();
  executor.io_threads = value.at("io_threads").get<int>();
  executor.nice = value.at("nice").get<int>();
  executor.decode_memory = read_bound(value.at("decode_memory"));
  if (const auto cpus = value.find("cpus"); cpus != value.end()) {
    const auto text = cpus->get<std::string>();
    executor.cpus = parse_cpus(text);
    if (!executor.cpus) {
      return tl::unexpected<Status>(
          child(node, "cpus")
              .fail("executor.cpus: " + quote(text) + " is no list of CPUs; write numbers up to " +
                    std::to_string(kMaxCpu) + " and ranges, such as 0-3,8"));
    }
  }
  return executor;
}

// Seconds of "30s", "90m", "12h", "7d": at least `least` of a unit that is not below `smallest`.
std::optional<std::uint64_t> parse_time(std::string_view text, char smallest, std::int64_t least) {
  constexpr std::string_view kUnits = "smhd";
  constexpr std::array<std::uint64_t, 4> kSeconds{1, 60, 3600, 24 * 3600};
  constexpr std::int64_t kMost = 1'000'000;
  if (text.empty()) return std::nullopt;
  const std::size_t unit = kUnits.find(text.back());
  const std::optional<std::int64_t> number = parse_integer(text.substr(0, text.size() - 1));
  if (unit == std::string_view::npos || unit < kUnits.find(smallest)) return std::nullopt;
  if (!number || *number < least || *number > kMost) return std::nullopt;
  return static_cast<std::uint64_t>(*number) * kSeconds[unit];
}

Result<ArenaConfig> read_arena(const Node& node, const Json& value) {
  ArenaConfig arena;
  const Json& kind = value.at("kind");
  arena.kind = kind == "posix"     ? ArenaConfig::Kind::kPosix
               : kind == "hugetlb" ? ArenaConfig::Kind::kHugetlb
                                   : ArenaConfig::Kind::kMemfd;
  arena.budget = read_bound(value.at("budget"));
  const auto idle = value.at("idle").get<std::string>();
  const std::optional<std::uint64_t> seconds = parse_time(idle, 's', 0);
  if (!seconds)
    return tl::unexpected<Status>(
        child(node, "idle")
            .fail("arena.idle: " + quote(idle) +
                  " is no time; write a whole number of seconds, minutes or hours, such as 30s, or "
                  "0s to keep none"));
  arena.idle_s = *seconds;
  return arena;
}

Result<CacheConfig> read_cache(const Node& node, const Json& value, const std::string& state_dir) {
  CacheConfig cache;
  cache.ram = read_bound(value.at("ram"));
  cache.disk_bytes = value.at("disk").get<std::uint64_t>();
  cache.dir = (state_dir == "/" ? "" : state_dir) + "/cache";
  if (const auto given = value.find("dir"); given != value.end()) {
    SPDLD_ASSIGN(cache.dir,
                 absolute_path(child(node, "dir"), "cache.dir", given->get<std::string>()));
  }
  return cache;
}

// `found`, with where it stands in the file if it failed.
Result<std::uint32_t> id_at(const Node& node, const std::string& name,
                            const Result<std::uint32_t>& found) {
  if (found) return *found;
  return tl::unexpected<Status>(node.fail(name + ": " + found.error().message()));
}

// `roots` as check() has them: a path, or a map with one.
Result<std::vector<AccessConfig::Root>> read_roots(const Node& node, const Json& value) {
  std::vector<AccessConfig::Root> roots;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string name = "access.roots[" + std::to_string(i) + "]";
    const Node& at = item(node, i);
    const Json& given = value[i];
    AccessConfig::Root& root = roots.emplace_back();
    if (given.is_string()) {
      SPDLD_ASSIGN(root.path, absolute_path(at, name, given.get<std::string>()));
      continue;
    }
    SPDLD_ASSIGN(root.path, absolute_path(child(at, "path"), name + ".path",
                                          given.at("path").get<std::string>()));
    const Json& groups = given.at("groups");
    for (std::size_t k = 0; k < groups.size(); ++k) {
      SPDLD_ASSIGN(const gid_t group,
                   id_at(item(child(at, "groups"), k), name + ".groups[" + std::to_string(k) + "]",
                         find_group(groups[k].get<std::string>())));
      root.groups.push_back(group);
    }
    sort_unique(root.groups);
  }
  return roots;
}

Result<AccessConfig> read_access(const Node& node, const Json& value) {
  AccessConfig access;
  SPDLD_ASSIGN(access.roots, read_roots(child(node, "roots"), value.at("roots")));
  access.trust_root = value.at("trust_root").get<bool>();
  const auto users = value.find("admins");
  if (users == value.end()) {
    if (access.trust_root) access.admins.push_back(0);
    return access;
  }
  const Node& admins = child(node, "admins");
  for (std::size_t i = 0; i < users->size(); ++i) {
    SPDLD_ASSIGN(const uid_t uid, id_at(item(admins, i), "access.admins[" + std::to_string(i) + "]",
                                        find_user((*users)[i].get<std::string>())));
    access.admins.push_back(uid);
  }
  sort_unique(access.admins);
  return access;
}

Result<JobConfig> read_job(const Node& node, const Json& value) {
  const auto text = value.at("retain").get<std::string>();
  const std::optional<std::uint64_t> seconds = parse_time(text, 'm', 1);
  if (!seconds)
    return tl::unexpected<Status>(
        child(node, "retain")
            .fail("job.retain: " + quote(text) +
                  " is no time; write a whole number of minutes, hours or days, such as 90m, 12h "
                  "or 7d"));
  return JobConfig{.retain_s = *seconds};
}

LimitsConfig read_limits(const Json& value) {
  LimitsConfig limits;
  const Json& connections = value.at("connections");
  if (connections.is_number()) limits.connections = connections.get<int>();
  limits.control_connections = value.at("control_connections").get<int>();
  limits.long_calls = value.at("long_calls").get<int>();
  limits.listings = value.at("listings").get<int>();
  limits.pipelines = value.at("pipelines").get<int>();
  limits.jobs = value.at("jobs").get<int>();
  limits.unattached_bytes = value.at("unattached").get<std::uint64_t>();
  limits.unread_bytes = value.at("unread").get<std::uint64_t>();
  limits.file_bytes = value.at("files").get<std::uint64_t>();
  limits.arena = read_bound(value.at("arena"));
  limits.listing_memory = read_bound(value.at("listing_memory"));
  limits.max_pixels = value.at("max_pixels").get<std::int64_t>();
  if (const auto given = value.find("row_memory"); given != value.end())
    limits.row_memory = read_bound(*given);
  return limits;
}

bool is_address(const std::string& text) {
  in6_addr ignored{};
  return inet_pton(AF_INET, text.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

Result<HttpConfig> read_http(const Node& node, const Json& value) {
  HttpConfig http{.jobs = value.at("jobs").get<bool>()};
  const auto given = value.find("listen");
  if (given == value.end()) return http;
  const Node& at = child(node, "listen");
  const auto text = given->get<std::string>();
  const auto refuse = [&](const std::string& why) {
    return tl::unexpected<Status>(at.fail("http.listen: " + why));
  };

  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    if (text.size() == kUnix.size())
      return refuse("no path after 'unix:'; write one, such as unix:/run/spdld/http.sock");
    SPDLD_ASSIGN(http.unix_path, absolute_path(at, "http.listen", text.substr(kUnix.size())));
    constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
    if (http.unix_path.size() > kLongest)
      return refuse(std::to_string(http.unix_path.size()) +
                    " bytes are too long for a socket's path; use at most " +
                    std::to_string(kLongest));
    return http;
  }

  const std::size_t colon = text.rfind(':');
  const std::string_view port = std::string_view(text).substr(std::min(colon, text.size()));
  const std::int64_t number = port.empty() ? -1 : parse_integer(port.substr(1)).value_or(-1);
  std::string address = text.substr(0, colon);
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  if (bracketed) address = address.substr(1, address.size() - 2);
  if (number < 0 || bracketed != (address.find(':') != std::string::npos))
    return refuse(quote(text) +
                  " is neither unix:PATH nor ADDRESS:PORT, such as 127.0.0.1:9464 or "
                  "'[::1]:9464'");
  if (number < 1 || number > 65535)
    return refuse("port " + std::to_string(number) + " is not between 1 and 65535");
  if (!is_address(address))
    return refuse(quote(address) +
                  " is no address; write 127.0.0.1 for this machine alone, one of the machine's "
                  "for a network, or 0.0.0.0 for all");
  http.address = std::move(address);
  http.port = static_cast<std::uint16_t>(number);
  return http;
}

Result<Node> read_root(const std::string& path, const std::string& working_directory) {
  if (path.empty()) {
    Node root;
    root.kind = Node::Kind::kMap;
    root.document = std::make_shared<const Document>(
        Document{.name = "defaults", .directory = working_directory});
    return root;
  }
  SPDLD_ASSIGN(const std::string text, read_text_file(path));
  const std::filesystem::path absolute = std::filesystem::path(working_directory) / path;
  auto document = std::make_shared<const Document>(
      Document{.name = path, .directory = absolute.parent_path().string()});
  SPDLD_ASSIGN(Node root, parse_yaml(text, std::move(document)));
  if (root.kind != Node::Kind::kMap) {
    return tl::unexpected<Status>(
        root.fail("expected the daemon's configuration, a map of keys, got " + root.describe()));
  }
  return root;
}

// A directory that is not there holds nothing; any other failure ends the search.
int ends_glob(const char*, int failure) {
  return failure == ENOENT || failure == ENOTDIR ? 0 : failure;
}

// Frees what glob(3) found.
struct Glob {
  Glob() = default;
  Glob(const Glob&) = delete;
  Glob& operator=(const Glob&) = delete;
  ~Glob() { ::globfree(&found); }
  glob_t found{};
};

}  // namespace

Result<DaemonConfig> load_daemon_config(const std::string& path,
                                        const std::vector<std::string>& overrides) {
  std::error_code failure;
  const std::string working_directory = std::filesystem::current_path(failure).string();
  SPDLD_ASSIGN(Node root, read_root(path, working_directory));
  for (const std::string& assignment : overrides) {
    SPDLD_TRY(apply_override(root, assignment, working_directory));
  }
  SPDLD_ASSIGN(const Json json, check(root, daemon_shape(), ""));

  DaemonConfig config;
  SPDLD_ASSIGN(config.runtime_dir,
               read_runtime_dir(child(root, "runtime_dir"), json.at("runtime_dir")));
  SPDLD_ASSIGN(config.state_dir, absolute_path(child(root, "state_dir"), "state_dir",
                                               json.at("state_dir").get<std::string>()));
  SPDLD_ASSIGN(config.pipelines,
               read_paths(child(root, "pipelines"), json.at("pipelines"), "pipelines"));
  SPDLD_ASSIGN(config.executor, read_executor(child(root, "executor"), json.at("executor")));
  SPDLD_ASSIGN(config.arena, read_arena(child(root, "arena"), json.at("arena")));
  config.decoder.index = read_bound(json.at("decoder").at("index"));
  config.cuda.budget_bytes = read_bound(json.at("cuda").at("budget")).bytes;
  SPDLD_ASSIGN(config.cache, read_cache(child(root, "cache"), json.at("cache"), config.state_dir));
  SPDLD_ASSIGN(config.access, read_access(child(root, "access"), json.at("access")));
  SPDLD_ASSIGN(config.job, read_job(child(root, "job"), json.at("job")));
  config.limits = read_limits(json.at("limits"));
  SPDLD_ASSIGN(config.http, read_http(child(root, "http"), json.at("http")));
  config.log.level = json.at("log").at("level").get<std::string>();
  config.log.format = json.at("log").at("format").get<std::string>();
  return config;
}

Result<std::vector<std::string>> pipeline_files(const DaemonConfig& config) {
  std::vector<std::string> files;
  for (const std::string& pattern : config.pipelines) {
    Glob glob;
    const int outcome = ::glob(pattern.c_str(), GLOB_NOSORT, ends_glob, &glob.found);
    if (outcome == GLOB_NOMATCH) {
      if (pattern.find_first_of("*?[") != std::string::npos) continue;
      return error(Code::kNotFound, "pipelines: there is no file " + pattern);
    }
    if (outcome != 0) {
      return error(outcome == GLOB_NOSPACE ? Code::kResourceExhausted : Code::kPermissionDenied,
                   "pipelines: cannot list " + pattern +
                       (outcome == GLOB_NOSPACE ? ": out of memory"
                                                : ": a directory on its way cannot be read"));
    }
    files.insert(files.end(), glob.found.gl_pathv, glob.found.gl_pathv + glob.found.gl_pathc);
  }
  sort_unique(files);
  return files;
}

}  // namespace spdld::spec
