// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "spdld/loader.h"

namespace spdld::client {

// Reads one environment variable; tests give their own.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_env(const std::string& name);

// Who this process is among those that a launcher started, and which part of the data it takes.
struct Placement {
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::int32_t shard = 0;       // -1: the daemon assigns
  std::int32_t num_shards = 1;  // -1: as the job has it
  std::string job;              // empty: private to this process
  std::string replica;          // its number, from 0; empty: it is alone
  std::uint32_t incarnation = 0;
  std::string by;  // what says rank and world size, for people
  bool by_mpi = false;
};

// What the options say, else what torchrun, Slurm or an MPI put into the environment. Throws
// PipelineError when they contradict each other or leave the rank open: a rank that is guessed
// wrong would read another one's data.
Placement find_placement(const LoaderOptions& options, const EnvLookup& env);

// The runtime directory: the option, else $SPDLD_ADDRESS, else /run/spdld.
std::string find_address(const LoaderOptions& options, const EnvLookup& env);

}  // namespace spdld::client
