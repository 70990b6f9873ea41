// SPDX-License-Identifier: Apache-2.0
#include "launch_env.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "text.h"

namespace spdld::client {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw PipelineError(kInvalidArgument, message);
}

std::optional<std::int32_t> number(const EnvLookup& env, const std::string& name) {
  const auto text = env(name);
  if (!text || text->empty()) return std::nullopt;
  std::int32_t value = 0;
  const char* last = text->data() + text->size();
  const auto [end, failed] = std::from_chars(text->data(), last, value);
  if (failed != std::errc{} || end != last || value < 0) {
    fail(join(name, " is '", *text, "', which is no count; unset it, or give Loader a rank"));
  }
  return value;
}

// What `count` of them are numbered.
std::string numbers(std::int32_t count) { return count == 1 ? "0" : join("0 to ", count - 1); }

bool is_set(const EnvLookup& env, const char* name) {
  const auto text = env(name);
  return text && !text->empty();
}

// The variables by which a launcher tells each process its place.
struct Launcher {
  const char* rank;
  const char* world_size;
  bool is_mpi = false;
};
constexpr Launcher kTorchrun = {"RANK", "WORLD_SIZE"};
constexpr Launcher kMpis[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},  // Open MPI
    {"PMI_RANK", "PMI_SIZE", true},                          // MPICH, Intel MPI
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", true},    // MVAPICH2
};

// Whether both variables are there, and so the place is found.
bool follow(const Launcher& launcher, Placement& place, const EnvLookup& env) {
  const auto rank = number(env, launcher.rank);
  const auto world_size = number(env, launcher.world_size);
  if (!rank || !world_size) return false;
  place.rank = *rank;
  place.world_size = *world_size;
  place.by = join(launcher.rank, " and ", launcher.world_size);
  place.by_mpi = launcher.is_mpi;
  return true;
}

// srun numbers the tasks of a step. A batch script, or a shell in an allocation, is told of
// SLURM_NTASKS tasks and is none of them: it is alone, whatever its SLURM_PROCID says.
bool follow_slurm(Placement& place, const EnvLookup& env) {
  if (follow({"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, place, env)) return true;
  if (is_set(env, "SLURM_STEP_ID")) return follow({"SLURM_PROCID", "SLURM_NTASKS"}, place, env);
  const auto rank = number(env, "SLURM_PROCID");
  if (rank && *rank > 0) {
    fail(join("SLURM_PROCID is ", *rank,
              ", but SLURM_STEP_NUM_TASKS is not set, as srun does: "
              "give Loader rank and world_size"));
  }
  if (rank && number(env, "SLURM_NTASKS").value_or(1) > 1) {
    place.by = "being no task of srun";
  }
  return false;
}

// One of a pair of variables is there without the other: what is missing cannot be guessed.
void refuse_half(const Launcher& launcher, const EnvLookup& env) {
  const auto rank = number(env, launcher.rank);
  const auto world_size = number(env, launcher.world_size);
  if (rank && !world_size) {
    fail(join(launcher.rank, " is ", *rank, ", but ", launcher.world_size,
              " is not set: set it, or give Loader rank and world_size"));
  }
  if (world_size && !rank && *world_size > 1) {
    fail(join(launcher.world_size, " is ", *world_size, ", but ", launcher.rank,
              " is not set: set it, or give Loader rank and world_size"));
  }
}

void follow_launcher(Placement& place, const EnvLookup& env) {
  if (follow(kTorchrun, place, env)) return;
  // Before Slurm: on other nodes mpirun starts its daemons by srun, and ranks inherit their step.
  for (const Launcher& mpi : kMpis) {
    if (follow(mpi, place, env)) return;
  }
  if (follow_slurm(place, env)) return;
  refuse_half(kTorchrun, env);
  for (const Launcher& mpi : kMpis) refuse_half(mpi, env);
}

void find_rank(Placement& place, const LoaderOptions& options, const EnvLookup& env) {
  if (options.rank.has_value() != options.world_size.has_value()) {
    fail("rank and world_size go together: give both, or neither, to take the launcher's");
  }
  place.by = "no launcher being found";
  if (options.rank) {
    place.rank = *options.rank;
    place.world_size = *options.world_size;
    place.by = "rank and world_size as given";
  } else {
    follow_launcher(place, env);
  }
  if (place.world_size < 1) fail(join("world_size is ", place.world_size, "; it is at least 1"));
  if (place.rank < 0 || place.rank >= place.world_size) {
    fail(join("there is no rank ", place.rank, " of ", place.world_size, ": ranks are ",
              numbers(place.world_size), " (", place.by, ")"));
  }
}

void find_shard(Placement& place, const LoaderOptions& options) {
  if (options.replicas < 1) fail(join("replicas is ", options.replicas, "; it is at least 1"));
  if (options.shard.has_value() != options.num_shards.has_value() &&
      options.shard.value_or(-1) != -1) {
    fail("shard and num_shards go together: give both, or neither, to take rank and world_size");
  }
  if (options.replicas > 1 && !options.shard) {
    fail(join(options.replicas,
              " replicas need shard and num_shards: which ranks see the same batches cannot be "
              "guessed"));
  }
  place.shard = options.shard.value_or(options.num_shards ? -1 : place.rank);
  place.num_shards = options.num_shards.value_or(options.shard ? -1 : place.world_size);
  if (place.num_shards < -1 || place.num_shards == 0) {
    fail(join("num_shards is ", place.num_shards, "; it is at least 1, or -1: as the job has it"));
  }
  if (place.shard < -1) {
    fail(join("shard is ", place.shard, "; it is at least 0, or -1: the daemon assigns one"));
  }
  if (place.num_shards > 0 && place.shard >= place.num_shards) {
    fail(join("there is no shard ", place.shard, " of ", place.num_shards, ": shards are ",
              numbers(place.num_shards), ", or -1: the daemon assigns one"));
  }
  if (options.replica && (*options.replica < 0 || *options.replica >= options.replicas)) {
    fail(join("there is no replica ", *options.replica, " of ", options.replicas, ": replicas are ",
              numbers(options.replicas)));
  }
  if (options.replicas > 1 && !options.replica) {
    fail(join("replicas is ", options.replicas,
              ", and replica is not given: which of them this is cannot be guessed"));
  }
  if (options.replica) place.replica = std::to_string(*options.replica);
}

// The run that all processes of a launcher have in common. Empty: it has told nothing of it.
std::string run_of_launcher(const Placement& place, const EnvLookup& env) {
  const auto text = [&env](const char* name) { return env(name).value_or(""); };
  // "none" is torchrun's id when it was given none.
  const std::string elastic = text("TORCHELASTIC_RUN_ID");
  if (!elastic.empty() && elastic != "none") return join("torchelastic-", elastic);
  // One run of mpirun; there may be several in one allocation of Slurm's.
  if (place.by_mpi && is_set(env, "PMIX_NAMESPACE")) {
    return join("mpi-", text("PMIX_NAMESPACE"));
  }
  if (is_set(env, "SLURM_JOB_ID")) {
    const std::string step = text("SLURM_STEP_ID");
    // Of an MPI's ranks only those on other nodes are in a step, that of its daemons.
    const bool names_step = !step.empty() && !place.by_mpi;
    return join("slurm-", text("SLURM_JOB_ID"), names_step ? "." + step : "");
  }
  if (is_set(env, "MASTER_ADDR") && is_set(env, "MASTER_PORT")) {
    return join(text("MASTER_ADDR"), ":", text("MASTER_PORT"));
  }
  return "";
}

void find_job(Placement& place, const LoaderOptions& options, const EnvLookup& env) {
  if (options.job) {
    place.job = *options.job;
  } else if (place.world_size > 1) {
    place.job = run_of_launcher(place, env);
    if (place.job.empty() && place.by_mpi) {
      fail(join("this is rank ", place.rank, " of ", place.world_size, " (", place.by,
                "), and nothing tells which run: name it by Loader's job, the same on all ranks"));
    }
  }
  if (place.job.empty() && options.replicas > 1) {
    fail("replicas see the same batches through a job of one name: name the job");
  }

  if (options.incarnation) {
    place.incarnation = *options.incarnation;
  } else if (const auto count = number(env, "TORCHELASTIC_RESTART_COUNT")) {
    place.incarnation = static_cast<std::uint32_t>(*count);
  } else if (const auto requeued = number(env, "SLURM_RESTART_COUNT")) {
    place.incarnation = static_cast<std::uint32_t>(*requeued);
  }
}

}  // namespace

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

Placement find_placement(const LoaderOptions& options, const EnvLookup& env) {
  Placement place;
  find_rank(place, options, env);
  find_shard(place, options);
  find_job(place, options, env);
  return place;
}

std::string find_address(const LoaderOptions& options, const EnvLookup& env) {
  std::string address = options.address;
  if (address.empty()) address = env("SPDLD_ADDRESS").value_or("");
  if (address.empty()) address = "/run/spdld";
  while (address.size() > 1 && address.back() == '/') address.pop_back();
  return address;
}

}  // namespace spdld::client
