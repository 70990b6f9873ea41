// SPDX-License-Identifier: Apache-2.0
#include "spec/daemon_shape.h"

#include <string>
#include <utility>

namespace spdld::spec {
namespace {

using Json = nlohmann::json;

// A text that must be there, with a default.
Key path_key(std::string name, std::string doc, std::string value) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .shape = string_shape(),
          .default_value = std::move(value)};
}

// Of memory.
Shape size_or_share(Shape size, const std::string& such_size, const std::string& such_share) {
  Shape shape = any_of({std::move(size), percent_shape()});
  shape.expected = "a size such as " + such_size + " or a percentage such as " + such_share;
  return shape;
}

// The same where none at all may be taken.
Shape size_share_or_zero(const std::string& such_size, const std::string& such_share) {
  Shape shape = size_or_share(bytes_or_zero_shape(), such_size, such_share);
  shape.expected += ", or 0 for none";
  return shape;
}

Key executor_key() {
  Shape threads = any_of({choice_shape({"auto"}), int_shape(1, 4096)});
  threads.expected = "auto or an integer from 1 to 4096";
  Shape cpus = string_shape();
  cpus.expected = "null or CPU numbers such as 0-3,8";
  Shape decode_memory = size_or_share(bytes_shape(), "8GiB", "10%");
  return section(
      "executor", "the threads that fetch, decode and transform",
      {
          {.name = "cpu_threads",
           .doc = "CPU workers; auto: as the affinity and the cgroup's quota allow",
           .shape = std::move(threads),
           .default_value = "auto"},
          {.name = "io_threads",
           .doc = "most threads that wait for storage; they come with need and end when idle",
           .shape = int_shape(1, 1024),
           .default_value = 256},
          {.name = "cpus",
           .doc = "the CPUs that workers are pinned to; null: wherever they may run",
           .shape = std::move(cpus),
           .nullable = true},
          {.name = "nice",
           .doc = "how far the workers give way to others: 19 is the lowest priority, 0 the usual "
                  "one, below 0 needs rights",
           .shape = int_shape(-20, 19),
           .default_value = 10},
          {.name = "decode_memory",
           .doc = "what rows that take much memory may take together while they are made, such "
                  "as large images: a size, or a share of what the machine or the cgroup has; a "
                  "row that takes more is made alone",
           .shape = std::move(decode_memory),
           .default_value = "10%"},
      });
}

Key arena_key() {
  Shape budget = size_or_share(bytes_shape(), "8GiB", "25%");
  Shape idle = string_shape();
  idle.expected = "a time such as 30s, 5m or 1h";
  return section(
      "arena", "the shared memory that batches lie in",
      {
          {.name = "kind",
           .doc = "memfd: sealed anonymous memory; posix: shm_open; hugetlb: huge pages",
           .shape = choice_shape({"memfd", "posix", "hugetlb"}),
           .default_value = "memfd"},
          {.name = "budget",
           .doc = "what all arenas together may take: a size, or a share of the memory that the "
                  "machine or the cgroup has",
           .shape = std::move(budget),
           .default_value = "25%"},
          {.name = "idle",
           .doc = "for how long an arena that nobody reads is kept for its user's next consumer: a "
                  "whole number of s, m or h; 0s: not at all",
           .shape = std::move(idle),
           .default_value = "30s"},
      });
}

Key cuda_key() {
  return section(
      "cuda", "what the daemon has on GPUs, for pipelines with 'delivery: {device: cuda}'",
      {
          {.name = "budget",
           .doc = "what all arenas on one GPU together may take of its memory; the "
                  "daemon's context there takes about 0.5 GB beside it while it is in use",
           .shape = bytes_shape(),
           .default_value = "2GiB"},
      });
}

Key decoder_key() {
  Shape index = size_share_or_zero("1GiB", "2%");
  return section("decoder", "decoding of images",
                 {
                     {.name = "index",
                      .doc = "memory for where in JPEG files decoding may begin, so that of a file "
                             "that comes again the crop alone is decoded: a size, or a share of "
                             "what the machine or the cgroup has; 0: none",
                      .shape = std::move(index),
                      .default_value = "2%"},
                 });
}

Key caches_key() {
  Shape ram = size_share_or_zero("8GiB", "10%");
  return section("cache", "what the sample caches of all pipelines together may take",
                 {
                     {.name = "ram",
                      .doc = "memory: a size, or a share of what the machine or the cgroup has",
                      .shape = std::move(ram),
                      .default_value = "10%"},
                     {.name = "disk",
                      .doc = "room in `dir`; 0: pipelines may keep nothing on a disk",
                      .shape = bytes_or_zero_shape(),
                      .default_value = 0U},
                     {.name = "dir",
                      .doc = "the directory for caches on disk; null: cache in state_dir",
                      .shape = string_shape(),
                      .nullable = true},
                 });
}

Key access_key() {
  Shape root = any_of(
      {string_shape(),
       map_shape({
           {.name = "path", .doc = "the directory", .shape = string_shape(), .required = true},
           {.name = "groups",
            .doc = "groups, by name or number, whose members may "
                   "read all below it, whatever modes and ACLs say",
            .shape = list_shape(string_shape()),
            .default_value = Json::array()},
       })});
  root.expected = "a path or a map with path and groups";
  Shape roots = list_shape(std::move(root));
  roots.min_items = 1;
  return section(
      "access", "who may do what",
      {
          {.name = "roots",
           .doc = "the directories below which pipelines may read, links followed: paths, or "
                  "{path, groups}",
           .shape = std::move(roots),
           .default_value = Json::array({"/"})},
          {.name = "admins",
           .doc = "users, by name or number, who may change what others own; null: root, unless "
                  "trust_root is false",
           .shape = list_shape(string_shape()),
           .nullable = true},
          {.name = "trust_root",
           .doc = "whether root may read whatever the daemon can; false: it is one user among "
                  "others, as the root of a container should be",
           .shape = bool_shape(),
           .default_value = true},
      });
}

Key job_key() {
  Shape retain = string_shape();
  retain.expected = "a time such as 90m, 12h or 7d";
  return section("job", "what is kept of jobs",
                 {
                     {.name = "retain",
                      .doc = "for how long it is known where a job was that has ended and was not "
                             "declared: a whole number of m, h or d, at least 1m",
                      .shape = std::move(retain),
                      .default_value = "7d"},
                 });
}

Key limits_key() {
  constexpr double kMostPixels = 65500.0 * 65500.0;  // decode_image takes no more
  Shape connections = any_of({choice_shape({"auto"}), int_shape(1, 65536)});
  connections.expected = "auto or an integer from 1 to 65536";
  Shape arena = size_or_share(bytes_shape(), "8GiB", "75%");
  Shape listing_memory = size_or_share(bytes_shape(), "4GiB", "10%");
  Shape row_memory = size_or_share(bytes_shape(), "8GiB", "20%");
  row_memory.expected = "null or " + row_memory.expected;
  return section(
      "limits", "what one user may have of the daemon at a time",
      {
          {.name = "connections",
           .doc = "connections to data.sock, one for each rank; auto: an eighth of the daemon's "
                  "file descriptors, at most 512",
           .shape = std::move(connections),
           .default_value = "auto"},
          {.name = "control_connections",
           .doc = "connections to control.sock",
           .shape = int_shape(1, 65536),
           .default_value = 64},
          {.name = "long_calls",
           .doc = "commands under way that list a dataset, decode, or watch",
           .shape = int_shape(1, 64),
           .default_value = 8},
          {.name = "listings",
           .doc = "datasets that are listed at the same time; others wait, but not for storage "
                  "that hangs",
           .shape = int_shape(1, 64),
           .default_value = 4},
          {.name = "pipelines",
           .doc =
               "pipelines that the user has applied, and as many that loaders have brought; root, "
               "access.admins and the daemon's own user are not bound",
           .shape = int_shape(1, 65536),
           .default_value = 256},
          {.name = "listing_memory",
           .doc = "memory of what the daemon knows of the items of the user's datasets: names, "
                  "values, indexes, lengths; a size, or a share of what the machine or the cgroup "
                  "has; all users together may take four times as much; root, access.admins and "
                  "the daemon's own user are bound by that alone",
           .shape = std::move(listing_memory),
           .default_value = "10%"},
          {.name = "jobs",
           .doc =
               "jobs that are declared or running, and jobs that have ended and are still known; "
               "root, access.admins and the daemon's own user are not bound",
           .shape = int_shape(1, 65536),
           .default_value = 1024},
          {.name = "unattached",
           .doc = "pipeline texts that ranks have sent and that are not answered yet",
           .shape = bytes_shape(),
           .default_value = 16U << 20},
          {.name = "unread",
           .doc = "answers that processes have asked for and not read",
           .shape = bytes_shape(),
           .default_value = 64U << 20},
          {.name = "files",
           .doc = "bytes read from files until they are decoded; a file for which there is no room "
                  "waits, and a larger one is read when the user has no other",
           .shape = bytes_shape(),
           .default_value = 512U << 20},
          {.name = "arena",
           .doc = "all arenas of a user together, those kept by processes that live on, too: a "
                  "size, or a share of arena.budget; access.admins and the daemon's own user are "
                  "not bound",
           .shape = std::move(arena),
           .default_value = "75%"},
          {.name = "max_pixels",
           .doc = "what decode_image.max_pixels may be: one such image takes up to 28 bytes a "
                  "pixel while it is decoded",
           .shape = int_shape(1, kMostPixels),
           .default_value = 500'000'000},
          {.name = "row_memory",
           .doc = "what one row may take while it is decoded and goes from stage to stage: a "
                  "size, or a share of what the machine or the cgroup has; a pipeline whose text "
                  "asks for more is refused, and a row whose data do is an error of its item; "
                  "null: twice executor.decode_memory",
           .shape = std::move(row_memory),
           .nullable = true},
      });
}

Key http_key() {
  Shape listen = string_shape();
  listen.expected = "null, unix:PATH or ADDRESS:PORT such as 127.0.0.1:9464";
  return section(
      "http", "metrics for Prometheus and the daemon's health, by HTTP",
      {
          {.name = "listen",
           .doc = "unix:PATH: who connects is shown what 'spdlctl metrics' shows that user; "
                  "ADDRESS:PORT: whoever reaches it is shown totals; null: nowhere",
           .shape = std::move(listen),
           .nullable = true},
          {.name = "jobs",
           .doc = "whether whoever reaches ADDRESS:PORT is shown what an admin is, too: jobs, "
                  "stages and ranks of all users, and storage",
           .shape = bool_shape(),
           .default_value = false},
      });
}

Key log_key() {
  return section(
      "log", "what the daemon writes to stderr",
      {
          {.name = "level",
           .doc = "what is less urgent is left out",
           .shape = choice_shape({"trace", "debug", "info", "warning", "error", "critical", "off"}),
           .default_value = "info"},
          {.name = "format",
           .doc = "lines for people, or one JSON object a line",
           .shape = choice_shape({"text", "json"}),
           .default_value = "text"},
      });
}

}  // namespace

Shape daemon_shape() {
  return map_shape({
      path_key("runtime_dir", "where the sockets live; clients are given this directory",
               "/run/spdld"),
      path_key("state_dir", "indexes, applied pipelines and the positions of jobs",
               "/var/lib/spdld"),
      {.name = "pipelines",
       .doc = "files that are applied at start, * and ? allowed; relative to this file",
       .shape = list_shape(string_shape()),
       .default_value = Json::array()},
      executor_key(),
      arena_key(),
      cuda_key(),
      decoder_key(),
      caches_key(),
      access_key(),
      job_key(),
      limits_key(),
      http_key(),
      log_key(),
  });
}

}  // namespace spdld::spec
