// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/daemon_config.h"

namespace spdld {

// What the command line says beside the configuration.
struct DaemonOptions {
  std::string version;
  // Made and owned by this daemon: removed with all that is in it when the daemon ends.
  bool own_runtime_dir = false;
  bool launched = false;  // by a loader, for itself and those who join it
};

// The composition root: builds every part of the daemon from the configuration, wires them, and
// takes them down in the reverse order. One thread makes it, ticks it and stops it.
class Daemon {
 public:
  // Returns when consumers can attach. Pipelines that were applied before are opened when they are
  // first named; those of the configuration that are new are listed first, unless their storage
  // does not answer. An error says what is in the way and what to do.
  static Result<std::unique_ptr<Daemon>> start(const spec::DaemonConfig& config,
                                               const DaemonOptions& options);
  ~Daemon();

  // The configuration was read again: its live values take effect, and it begins to apply the
  // pipeline files.
  void reload(const spec::DaemonConfig& config);
  // About once a second.
  void tick();
  // How long nobody has been attached; 0 while somebody is.
  std::chrono::nanoseconds idle_for() const;
  // Whether anybody ever was.
  bool was_used() const;
  // Says good-bye to all, writes down where everybody was, and waits for what is under way, but not
  // for storage. False: reads or listings are left that their storage does not answer, each with a
  // thread, for which the destructor would wait; the process is to end without it.
  // Idempotent.
  bool stop();
  // Another daemon may have the directories from now on. For a process that ends now, a thread of
  // which may hang in the kernel and keep it. Safe in a signal handler.
  void release_locks() const noexcept;

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace spdld
