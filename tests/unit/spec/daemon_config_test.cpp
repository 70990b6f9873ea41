// SPDX-License-Identifier: Apache-2.0
#include "spec/daemon_config.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "spec/parse.h"
#include "tests/support/scratch_dir.h"

namespace spdld::spec {
namespace {

class DaemonConfigTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    return scratch_.write(name, text);
  }
  Result<DaemonConfig> load(const std::string& text,
                            const std::vector<std::string>& overrides = {}) const {
    return load_daemon_config(write("spdld.yaml", text), overrides);
  }
  // The message without the directory in front.
  std::string error_of(const std::string& text,
                       const std::vector<std::string>& overrides = {}) const {
    const Result<DaemonConfig> config = load(text, overrides);
    if (config) return "";
    const std::string message = config.error().message();
    const std::string prefix = directory_.string() + "/";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  const test::ScratchDir scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

TEST_F(DaemonConfigTest, FillsInDefaultsWithoutAFile) {
  const Result<DaemonConfig> config = load_daemon_config("", {});
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->runtime_dir, "/run/spdld");
  EXPECT_EQ(config->state_dir, "/var/lib/spdld");
  EXPECT_TRUE(config->pipelines.empty());
  EXPECT_EQ(config->executor.cpu_threads, std::nullopt);
  EXPECT_EQ(config->executor.io_threads, 256);
  EXPECT_EQ(config->executor.cpus, std::nullopt);
  EXPECT_EQ(config->executor.nice, 10);
  EXPECT_EQ(config->executor.decode_memory.fraction, 0.10);
  EXPECT_EQ(config->limits.max_pixels, 500'000'000);
  EXPECT_FALSE(config->limits.row_memory);
  EXPECT_EQ(config->limits.listing_memory.fraction, 0.10);
  EXPECT_EQ(config->arena.kind, ArenaConfig::Kind::kMemfd);
  EXPECT_EQ(config->arena.budget.fraction, 0.25);
  EXPECT_EQ(config->cache.ram.fraction, 0.10);
  EXPECT_EQ(config->cache.disk_bytes, 0U);
  EXPECT_EQ(config->cache.dir, "/var/lib/spdld/cache");
  EXPECT_EQ(config->access.roots, std::vector<AccessConfig::Root>{{"/"}});
  EXPECT_EQ(config->access.admins, std::vector<uid_t>{0});
  EXPECT_TRUE(config->access.trust_root);
  EXPECT_EQ(config->limits.connections, std::nullopt);
  EXPECT_EQ(config->limits.control_connections, 64);
  EXPECT_EQ(config->limits.long_calls, 8);
  EXPECT_EQ(config->limits.listings, 4);
  EXPECT_EQ(config->limits.pipelines, 256);
  EXPECT_EQ(config->limits.jobs, 1024);
  EXPECT_EQ(config->limits.unattached_bytes, 16u << 20);
  EXPECT_EQ(config->limits.unread_bytes, 64u << 20);
  EXPECT_EQ(config->limits.file_bytes, 512u << 20);
  EXPECT_FALSE(config->http.is_served());
  EXPECT_EQ(config->log.level, "info");
  EXPECT_EQ(config->log.format, "text");
}

TEST_F(DaemonConfigTest, RootIsAnAdminWhereItIsTrustedOrNamed) {
  const auto admins = [this](const std::string& access) {
    const Result<DaemonConfig> config = load("access: {" + access + "}\n");
    EXPECT_TRUE(config) << config.error().message();
    return config ? config->access.admins : std::vector<uid_t>{7};
  };
  EXPECT_EQ(admins("admins: null"), std::vector<uid_t>{0});
  EXPECT_EQ(admins("trust_root: true"), std::vector<uid_t>{0});
  EXPECT_EQ(admins("trust_root: false"), std::vector<uid_t>());
  EXPECT_EQ(admins("trust_root: false, admins: [root]"), std::vector<uid_t>{0});
  EXPECT_EQ(admins("admins: []"), std::vector<uid_t>());
}

TEST_F(DaemonConfigTest, TakesEveryKey) {
  const Result<DaemonConfig> config = load(R"(
runtime_dir: run
state_dir: /state/
pipelines: ["pipelines/*.yaml", /etc/one.yaml]
executor: {cpu_threads: 3, io_threads: 4, cpus: "0-3,8,2", nice: -5, decode_memory: 512MiB}
arena: {kind: hugetlb, budget: 2GiB}
cache: {ram: 3GiB, disk: 1GiB, dir: kept}
access: {roots: [/data, more, {path: /ml, groups: [7, root, "7"]}, {path: /own}], admins: [7, root, "7"]}
limits:
  {connections: 9, control_connections: 8, long_calls: 7, listings: 6, pipelines: 5, jobs: 3,
   unattached: 5MiB, unread: 4MiB, files: 2MiB, listing_memory: 6MiB, row_memory: 3GiB}
log: {level: warning, format: json}
)");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->runtime_dir, directory_ / "run");
  EXPECT_EQ(config->state_dir, "/state");
  EXPECT_EQ(config->pipelines,
            (std::vector<std::string>{directory_ / "pipelines/*.yaml", "/etc/one.yaml"}));
  EXPECT_EQ(config->executor.cpu_threads, 3);
  EXPECT_EQ(config->executor.io_threads, 4);
  EXPECT_EQ(config->executor.cpus, (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(config->executor.nice, -5);
  EXPECT_EQ(config->executor.decode_memory.bytes, std::uint64_t{512} << 20);
  EXPECT_EQ(config->arena.kind, ArenaConfig::Kind::kHugetlb);
  EXPECT_EQ(config->arena.budget.fraction, std::nullopt);
  EXPECT_EQ(config->arena.budget.bytes, 2ull << 30);
  EXPECT_EQ(config->cache.ram.fraction, std::nullopt);
  EXPECT_EQ(config->cache.ram.bytes, 3ull << 30);
  EXPECT_EQ(config->cache.disk_bytes, 1ull << 30);
  EXPECT_EQ(config->cache.dir, directory_ / "kept");
  EXPECT_EQ(config->access.roots,
            (std::vector<AccessConfig::Root>{
                {"/data"}, {directory_ / "more"}, {"/ml", {0, 7}}, {"/own", {}}}));
  EXPECT_EQ(config->access.admins, (std::vector<uid_t>{0, 7}));
  EXPECT_EQ(config->limits.connections, 9);
  EXPECT_EQ(config->limits.control_connections, 8);
  EXPECT_EQ(config->limits.long_calls, 7);
  EXPECT_EQ(config->limits.listings, 6);
  EXPECT_EQ(config->limits.pipelines, 5);
  EXPECT_EQ(config->limits.jobs, 3);
  EXPECT_EQ(config->limits.unattached_bytes, 5u << 20);
  EXPECT_EQ(config->limits.unread_bytes, 4u << 20);
  EXPECT_EQ(config->limits.file_bytes, 2u << 20);
  EXPECT_EQ(config->limits.listing_memory.bytes, 6u << 20);
  ASSERT_TRUE(config->limits.row_memory);
  EXPECT_EQ(config->limits.row_memory->bytes, std::uint64_t{3} << 30);
  EXPECT_EQ(config->log.level, "warning");
  EXPECT_EQ(config->log.format, "json");
}

TEST_F(DaemonConfigTest, LetsTheCommandLineOverrideTheFile) {
  const Result<DaemonConfig> config =
      load("arena: {budget: 10%, kind: posix}\nexecutor: {cpus: 1}\n",
           {"arena.budget=1GiB", "executor.cpus=null", "pipelines=[/a.yaml, /b.yaml]",
            "log.level=debug", "log.level=error", "executor.cpu_threads=auto"});
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->arena.budget.bytes, 1u << 30);
  EXPECT_EQ(config->arena.kind, ArenaConfig::Kind::kPosix);
  EXPECT_EQ(config->executor.cpus, std::nullopt);
  EXPECT_EQ(config->pipelines, (std::vector<std::string>{"/a.yaml", "/b.yaml"}));
  EXPECT_EQ(config->log.level, "error");
  EXPECT_EQ(config->executor.cpu_threads, std::nullopt);
}

TEST_F(DaemonConfigTest, KeepsCachesBesideTheStateUnlessToldWhere) {
  const Result<DaemonConfig> config =
      load("state_dir: /state\ncache: {ram: 0, disk: 5%}\n", {"cache.disk=2GiB", "cache.dir=null"});
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->cache.dir, "/state/cache");
  EXPECT_EQ(config->cache.ram.fraction, std::nullopt);
  EXPECT_EQ(config->cache.ram.bytes, 0U);
  EXPECT_EQ(config->cache.disk_bytes, 2ull << 30);
}

TEST_F(DaemonConfigTest, RefusesACacheThatIsNoSize) {
  EXPECT_EQ(error_of("cache: {disk: 5%}\n"),
            "spdld.yaml:1:15: cache.disk: expected a size such as 64MiB, got '5%'");
  EXPECT_EQ(error_of("cache: {ram: all}\n"),
            "spdld.yaml:1:14: cache.ram: expected a size such as 8GiB or a percentage such as "
            "10%, or 0 for none, got 'all'");
  EXPECT_EQ(error_of("decoder: {index: 0%}\n"),
            "spdld.yaml:1:18: decoder.index: expected a size such as 1GiB or a percentage such as "
            "2%, or 0 for none, got '0%'");
  EXPECT_EQ(error_of("cache: {size: 1GiB}\n"),
            "spdld.yaml:1:9: unknown key 'size' in 'cache'; there are: ram, disk, dir");
}

TEST_F(DaemonConfigTest, RefusesALimitThatLetsNobodyIn) {
  EXPECT_EQ(error_of("limits: {connections: 0}\n"),
            "spdld.yaml:1:23: limits.connections: expected auto or an integer from 1 to 65536, got "
            "the integer 0");
  EXPECT_EQ(error_of("limits: {unread: 0}\n"),
            "spdld.yaml:1:18: limits.unread: must be more than 0");
}

TEST_F(DaemonConfigTest, RefusesBadOverridesByTheirName) {
  const auto refused = [&](const std::string& assignment) { return error_of("{}", {assignment}); };
  EXPECT_EQ(refused("arena.bugdet=1GiB"),
            "--set arena.bugdet: unknown key 'bugdet' in 'arena'; did you mean 'budget'?");
  EXPECT_EQ(
      refused("arena.budget=lots"),
      "--set arena.budget: arena.budget: expected a size such as 8GiB or a percentage such as "
      "25%, got 'lots'");
  EXPECT_EQ(refused("arena=5"), "--set arena: arena: expected a map, got the integer 5");
  EXPECT_EQ(refused("arena.budget"), "--set 'arena.budget': expected KEY=VALUE");
  EXPECT_EQ(refused("arena.budget="),
            "--set 'arena.budget=': no value after '='; null stands for none");
  EXPECT_EQ(refused("=5"), "--set '=5': expected a dotted key such as arena.budget before '='");
  EXPECT_EQ(refused("a..b=5"),
            "--set 'a..b=5': expected a dotted key such as arena.budget before '='");
  EXPECT_EQ(refused("pipelines=[a"),
            "--set pipelines:1:1: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(refused("log.level.deep=1"),
            "--set log.level.deep: log.level: expected one of trace, debug, info, warning, error, "
            "critical, off, got a map");
}

TEST_F(DaemonConfigTest, RefusesBadValuesByTheirPlace) {
  EXPECT_EQ(error_of("executer: {}\n"),
            "spdld.yaml:1:1: unknown key 'executer'; did you mean 'executor'?");
  EXPECT_EQ(
      error_of("executor: {cpu_threads: 0}\n"),
      "spdld.yaml:1:25: executor.cpu_threads: expected auto or an integer from 1 to 4096, got "
      "the integer 0");
  EXPECT_EQ(error_of("executor: {io_threads: 0}\n"),
            "spdld.yaml:1:24: executor.io_threads: must be 1 to 1024, got 0");
  EXPECT_EQ(error_of("executor: {decode_memory: 0}\n"),
            "spdld.yaml:1:27: executor.decode_memory: expected a size such as 8GiB or a percentage "
            "such as 10%, got the integer 0");
  EXPECT_EQ(error_of("limits: {max_pixels: 0}\n"),
            "spdld.yaml:1:22: limits.max_pixels: must be 1 to 4290250000, got 0");
  EXPECT_EQ(error_of("executor: {nice: 20}\n"),
            "spdld.yaml:1:18: executor.nice: must be -20 to 19, got 20");
  EXPECT_EQ(
      error_of("arena: {kind: memdf}\n"),
      "spdld.yaml:1:15: arena.kind: 'memdf' is not one of memfd, posix, hugetlb; did you mean "
      "'memfd'?");
  EXPECT_EQ(error_of("arena: {budget: 120%}\n"),
            "spdld.yaml:1:17: arena.budget: expected a size such as 8GiB or a percentage such as "
            "25%, got '120%'");
  EXPECT_EQ(error_of("log: {level: warn}\n"),
            "spdld.yaml:1:14: log.level: 'warn' is not one of trace, debug, info, warning, error, "
            "critical, off");
  EXPECT_EQ(error_of("pipelines: a.yaml\n"),
            "spdld.yaml:1:12: pipelines: expected a list of texts, got 'a.yaml'");
  EXPECT_EQ(error_of("access: {roots: []}\n"),
            "spdld.yaml:1:17: access.roots: must hold at least 1 value, got 0");
  EXPECT_EQ(error_of("[]"),
            "spdld.yaml:1:1: expected the daemon's configuration, a map of keys, got a list");
}

TEST_F(DaemonConfigTest, RefusesCpusThatAreNone) {
  for (const char* cpus : {"a", "3-1", "0-4096", "1,", ",1", "-1", "1--2", "0x1", "1;2"}) {
    EXPECT_EQ(error_of("executor: {cpus: \"" + std::string(cpus) + "\"}\n"),
              "spdld.yaml:1:18: executor.cpus: '" + std::string(cpus) +
                  "' is no list of CPUs; write numbers up to 4095 and ranges, such as 0-3,8");
  }
}

TEST_F(DaemonConfigTest, RefusesUsersThatAreNotThere) {
  EXPECT_EQ(error_of("access: {admins: [root, no-such-user-here]}\n"),
            "spdld.yaml:1:25: access.admins[1]: 'no-such-user-here': there is no such user on this "
            "machine");
  EXPECT_EQ(error_of("access: {admins: [4294967295]}\n"),
            "spdld.yaml:1:19: access.admins[0]: '4294967295': there is no such user on this "
            "machine");
}

TEST_F(DaemonConfigTest, RefusesARuntimeDirTooLongForItsSockets) {
  EXPECT_EQ(error_of("runtime_dir: /" + std::string(93, 'x') + "\n"), "");
  EXPECT_EQ(
      error_of("runtime_dir: /" + std::string(94, 'x') + "\n"),
      "spdld.yaml:1:14: runtime_dir: 95 bytes are too long for the sockets in it; use at most "
      "94");
}

TEST_F(DaemonConfigTest, RefusesFilesThatCannotBeRead) {
  EXPECT_EQ(load_daemon_config("/no/such.yaml", {}).error().message(),
            "cannot open /no/such.yaml: No such file or directory");
  EXPECT_EQ(load_daemon_config("/tmp", {}).error().message(),
            "cannot read /tmp: not a regular file");
  EXPECT_EQ(load_daemon_config("/dev/zero", {}).error().message(),
            "cannot read /dev/zero: not a regular file");
  const std::string large = write("large.yaml", std::string(kMaxFileBytes + 1, '#'));
  EXPECT_EQ(load_daemon_config(large, {}).error().message(),
            large + ": larger than 1048576 bytes; is this a YAML file?");
}

TEST_F(DaemonConfigTest, ListsPipelineFilesSortedAndOnce) {
  write("p/b.yaml", "");
  write("p/a.yaml", "");
  write("p/c.txt", "");
  const Result<DaemonConfig> config = load("pipelines: [\"p/*.yaml\", p/a.yaml, \"q/*.yaml\"]\n");
  ASSERT_TRUE(config) << config.error().message();
  const Result<std::vector<std::string>> files = pipeline_files(*config);
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(*files, (std::vector<std::string>{directory_ / "p/a.yaml", directory_ / "p/b.yaml"}));
}

TEST_F(DaemonConfigTest, RefusesAPipelineFileThatIsNotThere) {
  const Result<DaemonConfig> config = load("pipelines: [gone.yaml]\n");
  ASSERT_TRUE(config);
  const Result<std::vector<std::string>> files = pipeline_files(*config);
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code(), Code::kNotFound);
  EXPECT_EQ(files.error().message(),
            "pipelines: there is no file " + (directory_ / "gone.yaml").string());
}

TEST_F(DaemonConfigTest, ReadsForHowLongJobsAreKnown) {
  EXPECT_EQ(load("log: {level: info}")->job.retain_s, 7U * 24 * 3600);
  EXPECT_EQ(load("job: {retain: 90m}")->job.retain_s, 90U * 60);
  EXPECT_EQ(load("job: {retain: 12h}")->job.retain_s, 12U * 3600);
  EXPECT_EQ(load("log: {level: info}", {"job.retain=30d"})->job.retain_s, 30U * 24 * 3600);
}

TEST_F(DaemonConfigTest, ReadsForHowLongIdleArenasAreKept) {
  EXPECT_EQ(load("log: {level: info}")->arena.idle_s, 30U);
  EXPECT_EQ(load("arena: {idle: 0s}")->arena.idle_s, 0U);
  EXPECT_EQ(load("arena: {idle: 5m}")->arena.idle_s, 300U);
  for (const char* wrong : {"30", "-1s", "1.5s", "s", "never"}) {
    const auto config = load("log: {level: info}", {std::string("arena.idle='") + wrong + "'"});
    ASSERT_FALSE(config) << wrong;
    EXPECT_NE(config.error().message().find("is no time; write a whole number of seconds"),
              std::string::npos)
        << config.error().message();
  }
}

TEST_F(DaemonConfigTest, ReadsWhatOneUserMayHaveOfTheArenaBudget) {
  EXPECT_EQ(load("log: {level: info}")->limits.arena.fraction, 0.75);
  EXPECT_EQ(load("limits: {arena: 50%}")->limits.arena.fraction, 0.5);
  const auto fixed = load("limits: {arena: 8GiB}");
  EXPECT_EQ(fixed->limits.arena.fraction, std::nullopt);
  EXPECT_EQ(fixed->limits.arena.bytes, std::uint64_t{8} << 30);
  EXPECT_FALSE(load("limits: {arena: lots}"));
}

TEST_F(DaemonConfigTest, ReadsWhereMetricsAreServed) {
  EXPECT_FALSE(load("log: {level: info}")->http.is_served());
  EXPECT_FALSE(load("http: {listen: null}")->http.is_served());
  const auto local = load("http: {listen: 127.0.0.1:9464}")->http;
  EXPECT_EQ(local.address, "127.0.0.1");
  EXPECT_EQ(local.port, 9464);
  EXPECT_FALSE(local.jobs);
  const auto all = load("http: {listen: '[::]:65535', jobs: true}")->http;
  EXPECT_EQ(all.address, "::");
  EXPECT_EQ(all.port, 65535);
  EXPECT_TRUE(all.jobs);
  const auto of_unix = load("http: {listen: 'unix:run/http.sock'}")->http;
  EXPECT_EQ(of_unix.unix_path, directory_ / "run/http.sock");
  EXPECT_EQ(of_unix.address, "");
  EXPECT_TRUE(of_unix.is_served());
}

TEST_F(DaemonConfigTest, RefusesWhereNothingCanBeServed) {
  const auto refused = [&](const std::string& listen) {
    const std::string told = error_of("http: {listen: '" + listen + "'}\n");
    const std::string start = "spdld.yaml:1:16: http.listen: ";
    EXPECT_EQ(told.substr(0, start.size()), start);
    return told.substr(std::min(start.size(), told.size()));
  };
  for (const std::string neither :
       {"here", "::1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "::1:80", "[127.0.0.1]:80",
        "http://127.0.0.1:80", "9464", "unix"}) {
    EXPECT_EQ(refused(neither), "'" + neither +
                                    "' is neither unix:PATH nor ADDRESS:PORT, such as "
                                    "127.0.0.1:9464 or '[::1]:9464'");
  }
  for (const std::string name : {"localhost", "*", "1.2.3", "1.2.3.4.5", "0x7f000001"}) {
    EXPECT_EQ(refused(name + ":9464"),
              "'" + name +
                  "' is no address; write 127.0.0.1 for this machine alone, one of the machine's "
                  "for a network, or 0.0.0.0 for all");
  }
  EXPECT_EQ(refused("127.0.0.1:0"), "port 0 is not between 1 and 65535");
  EXPECT_EQ(refused("127.0.0.1:65536"), "port 65536 is not between 1 and 65535");
  EXPECT_EQ(refused("unix:"),
            "no path after 'unix:'; write one, such as unix:/run/spdld/http.sock");
  EXPECT_EQ(refused("unix:/" + std::string(107, 'x')),
            "108 bytes are too long for a socket's path; use at most 107");
  EXPECT_EQ(error_of("http: {listen: [127.0.0.1]}\n"),
            "spdld.yaml:1:16: http.listen: expected null, unix:PATH or ADDRESS:PORT such as "
            "127.0.0.1:9464, got a list");
}

TEST_F(DaemonConfigTest, RefusesTimesThatAreNone) {
  for (const char* wrong : {"7", "7w", "0d", "-1h", "1.5h", "d", "30s", "99999999999d"}) {
    const auto config = load("log: {level: info}", {std::string("job.retain='") + wrong + "'"});
    ASSERT_FALSE(config) << wrong;
    EXPECT_NE(config.error().message().find("is no time; write a whole number of minutes"),
              std::string::npos)
        << config.error().message();
  }
}

}  // namespace
}  // namespace spdld::spec
