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

struct Launcher {
  const char* rank;
  const char* world_size;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
};

void find_rank(Placement& place, const LoaderOptions& options, const EnvLookup& env) {
  if (options.rank.has_value() != options.world_size.has_value()) {
    fail("rank and world_size go together: give both, or neither to take the launcher's");
  }
  if (options.rank) {
    place.rank = *options.rank;
    place.world_size = *options.world_size;
  } else {
    for (const Launcher& launcher : kLaunchers) {
      const auto rank = number(env, launcher.rank);
      const auto world_size = number(env, launcher.world_size);
      if (rank && world_size) {
        place.rank = *rank;
        place.world_size = *world_size;
        break;
      }
      // What Slurm and Open MPI set outside of a task says nothing; torchrun's half does.
      if (&launcher != &kLaunchers[0]) continue;
      if (world_size && *world_size > 1 && !number(env, "SLURM_PROCID") &&
          !number(env, "OMPI_COMM_WORLD_RANK")) {
        fail(join("WORLD_SIZE is ", *world_size,
                  ", but no rank is to be found (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK); give "
                  "Loader a rank"));
      }
    }
  }
  if (place.world_size < 1) fail(join("world_size is ", place.world_size, "; it is at least 1"));
  if (place.rank < 0 || place.rank >= place.world_size) {
    fail(join("there is no rank ", place.rank, " of ", place.world_size, ": ranks are ",
              numbers(place.world_size)));
  }
}

void find_shard(Placement& place, const LoaderOptions& options) {
  if (options.replicas < 1) fail(join("replicas is ", options.replicas, "; it is at least 1"));
  if (options.shard.has_value() != options.num_shards.has_value() &&
      options.shard.value_or(-1) != -1) {
    fail("shard and num_shards go together: give both, or neither to take rank and world_size");
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

void find_job(Placement& place, const LoaderOptions& options, const EnvLookup& env) {
  const auto elastic = env("TORCHELASTIC_RUN_ID");
  const auto slurm = env("SLURM_JOB_ID");
  // "none" is torchrun's id when it was given none.
  const bool has_elastic = elastic && !elastic->empty() && *elastic != "none";
  const bool has_slurm = slurm && !slurm->empty();

  if (options.job) {
    place.job = *options.job;
  } else if (place.world_size > 1) {
    const auto address = env("MASTER_ADDR");
    const auto port = env("MASTER_PORT");
    if (has_elastic) {
      place.job = join("torchelastic-", *elastic);
    } else if (has_slurm) {
      const auto step = env("SLURM_STEP_ID");
      place.job = join("slurm-", *slurm, step && !step->empty() ? "." + *step : "");
    } else if (address && port && !address->empty() && !port->empty()) {
      place.job = join(*address, ":", *port);
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
