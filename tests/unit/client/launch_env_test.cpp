// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/launch_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace spdld::client {
namespace {

using ::testing::HasSubstr;
using Env = std::map<std::string, std::string>;

Placement place(const Env& env, LoaderOptions options = {}) {
  return find_placement(options, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = env.find(name);
    if (found == env.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Env& env, LoaderOptions options = {}) {
  try {
    place(env, std::move(options));
  } catch (const PipelineError& error) {
    return error.what();
  }
  ADD_FAILURE() << "it was accepted";
  return "";
}

TEST(Placement, OfALoneProcessIsPrivateAndZeroOfOne) {
  const Placement found = place({{"SLURM_JOB_ID", "77"}});
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.world_size, 1);
  EXPECT_EQ(found.job, "") << "two scripts in one allocation are two jobs";
}

TEST(Placement, FollowsTorchrun) {
  const Placement found = place({{"RANK", "3"},
                                 {"WORLD_SIZE", "8"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "2"},
                                 {"TORCHELASTIC_RUN_ID", "abc"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(found.shard, 3);
  EXPECT_EQ(found.num_shards, 8);
  EXPECT_EQ(found.job, "torchelastic-abc");
  EXPECT_EQ(found.incarnation, 2u);
}

TEST(Placement, DoesNotTakeTorchrunsPlaceholderForAJob) {
  const Env env{{"RANK", "0"},
                {"WORLD_SIZE", "2"},
                {"TORCHELASTIC_RUN_ID", "none"},
                {"MASTER_ADDR", "node1"},
                {"MASTER_PORT", "29500"}};
  EXPECT_EQ(place(env).job, "node1:29500");
}

TEST(Placement, FollowsSrun) {
  const Placement slurm = place({{"SLURM_PROCID", "5"},
                                 {"SLURM_NTASKS", "16"},
                                 {"SLURM_JOB_ID", "1234"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_RESTART_COUNT", "1"}});
  EXPECT_EQ(slurm.shard, 5);
  EXPECT_EQ(slurm.num_shards, 16);
  EXPECT_EQ(slurm.job, "slurm-1234.0");
  EXPECT_EQ(slurm.incarnation, 1u);
}

TEST(Placement, FollowsMpis) {
  const std::pair<const char*, const char*> mpis[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}};
  for (const auto& [rank, size] : mpis) {
    const Placement found = place({{rank, "1"}, {size, "4"}, {"PMIX_NAMESPACE", "prterun-7@1"}});
    EXPECT_EQ(found.shard, 1);
    EXPECT_EQ(found.num_shards, 4);
    EXPECT_EQ(found.job, "mpi-prterun-7@1");
    EXPECT_EQ(found.by, std::string(rank) + " and " + size);
  }
}

TEST(Placement, AsksForTheJobOfAnMpiRunThatHasNoName) {
  const Env env{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};
  EXPECT_THAT(refusal(env), HasSubstr("this is rank 1 of 4 (PMI_RANK and PMI_SIZE), and nothing "
                                      "tells which run: name it by Loader's job"));
  EXPECT_EQ(place(env, {.job = "mine"}).shard, 1);
  EXPECT_EQ(place({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).job, "");
}

TEST(Placement, NamesTheJobOfAnMpiRunByItsOwnNameBeforeTheAllocations) {
  Env env{{"OMPI_COMM_WORLD_RANK", "0"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"SLURM_JOB_ID", "1234"},
          {"SLURM_PROCID", "0"}};
  EXPECT_EQ(place(env).job, "slurm-1234");
  env["PMIX_NAMESPACE"] = "99@1";
  EXPECT_EQ(place(env).job, "mpi-99@1");
}

TEST(Placement, GoesByMpirunWhereItsDaemonsAreTasksOfSrun) {
  const Placement found = place({{"OMPI_COMM_WORLD_RANK", "3"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"SLURM_JOB_ID", "7"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_PROCID", "1"},
                                 {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(found.shard, 3);
  EXPECT_EQ(found.num_shards, 4);
  EXPECT_EQ(found.job, "slurm-7") << "a rank on the node of mpirun is in no step";
}

TEST(Placement, ByTheOptionsWinsOverTheLauncher) {
  const Placement found = place({{"RANK", "3"}, {"WORLD_SIZE", "8"}},
                                {.job = "mine", .rank = 1, .world_size = 2, .incarnation = 9});
  EXPECT_EQ(found.shard, 1);
  EXPECT_EQ(found.num_shards, 2);
  EXPECT_EQ(found.job, "mine");
  EXPECT_EQ(found.incarnation, 9u);
}

TEST(Placement, TakesAProcessThatIsNoTaskOfSrunForAlone) {
  const Env shell_of_salloc{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}};
  Env batch_script = shell_of_salloc;
  batch_script["SLURM_PROCID"] = "0";
  Env interactive_step = batch_script;
  interactive_step["SLURM_STEP_ID"] = "4294967290";
  interactive_step["SLURM_STEP_NUM_TASKS"] = "1";
  for (const Env& env : {shell_of_salloc, batch_script, interactive_step}) {
    EXPECT_EQ(place(env).world_size, 1);
    EXPECT_EQ(place(env).job, "");
  }
  EXPECT_EQ(place(batch_script).by, "being no task of srun");
}

TEST(Placement, GoesByTheTasksOfTheStepAndNotOfTheAllocation) {
  const Placement found = place({{"SLURM_PROCID", "1"},
                                 {"SLURM_NTASKS", "8"},
                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_JOB_ID", "7"},
                                 {"SLURM_STEP_ID", "3"}});
  EXPECT_EQ(found.shard, 1);
  EXPECT_EQ(found.num_shards, 2);
}

TEST(Placement, RefusesATaskWhoseStepIsNotToBeSeen) {
  EXPECT_THAT(refusal({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}}),
              HasSubstr("SLURM_PROCID is 2, but SLURM_STEP_NUM_TASKS is not set"));
}

TEST(Placement, RefusesHalfOfAPlace) {
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE is 4, but RANK is not set"));
  EXPECT_THAT(refusal({{"RANK", "1"}}), HasSubstr("RANK is 1, but WORLD_SIZE is not set"));
  EXPECT_THAT(refusal({{"RANK", "0"}}), HasSubstr("RANK is 0, but WORLD_SIZE is not set"));
  EXPECT_THAT(refusal({{"PMI_RANK", "1"}}), HasSubstr("PMI_RANK is 1, but PMI_SIZE is not set"));
  EXPECT_EQ(place({{"WORLD_SIZE", "1"}}).world_size, 1);
  const Env whole_elsewhere{
      {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(place(whole_elsewhere).rank, 2);
}

TEST(Placement, TellsWhatItGoesBy) {
  EXPECT_EQ(place({}).by, "no launcher being found");
  EXPECT_EQ(place({{"RANK", "3"}, {"WORLD_SIZE", "8"}}).by, "RANK and WORLD_SIZE");
  EXPECT_EQ(place({}, {.rank = 3, .world_size = 8}).by, "rank and world_size as given");
}

TEST(Placement, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal({{"RANK", "four"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK is 'four'"));
  EXPECT_THAT(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
              HasSubstr("there is no rank 4 of 4: ranks are 0 to 3"));
  EXPECT_THAT(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}), HasSubstr("'-1'"));
  EXPECT_THAT(refusal({}, {.rank = 1}), HasSubstr("go together"));
  EXPECT_THAT(refusal({}, {.shard = 1}), HasSubstr("go together"));
  EXPECT_THAT(
      refusal({}, {.shard = 3, .num_shards = 3}),
      HasSubstr("there is no shard 3 of 3: shards are 0 to 2, or -1: the daemon assigns one"));
  EXPECT_THAT(refusal({}, {.shard = 1, .num_shards = 1}), HasSubstr("of 1: shards are 0, or -1"));
  EXPECT_THAT(refusal({}, {.shard = -2, .num_shards = 1}),
              HasSubstr("shard is -2; it is at least"));
  EXPECT_THAT(refusal({}, {.shard = 0, .num_shards = 0}), HasSubstr("num_shards is 0; it is at"));
  EXPECT_THAT(refusal({}, {.rank = 0, .world_size = 0}), HasSubstr("world_size is 0; it is at"));
  EXPECT_THAT(refusal({}, {.replicas = 0}), HasSubstr("replicas is 0"));
}

TEST(Placement, AsksWhichRanksSeeTheSameBatches) {
  const Env env{{"RANK", "3"}, {"WORLD_SIZE", "4"}};
  EXPECT_THAT(refusal(env, {.job = "j", .replicas = 2, .replica = 1}),
              HasSubstr("2 replicas need shard and num_shards"));
  EXPECT_THAT(refusal(env, {.shard = 1, .num_shards = 2, .replicas = 2, .replica = 1}),
              HasSubstr("name the job"));
  const Placement found =
      place(env, {.job = "j", .shard = 1, .num_shards = 2, .replicas = 2, .replica = 1});
  EXPECT_EQ(found.shard, 1);
  EXPECT_EQ(found.replica, "1");
}

TEST(Placement, NumbersReplicasFromZeroAndGuessesNone) {
  const auto says = [](std::optional<std::int32_t> replica, std::int32_t replicas) {
    return refusal(
        {}, {.job = "j", .shard = 0, .num_shards = 1, .replicas = replicas, .replica = replica});
  };
  EXPECT_THAT(says(std::nullopt, 2), HasSubstr("replica is not given"));
  EXPECT_THAT(says(2, 2), HasSubstr("there is no replica 2 of 2: replicas are 0 to 1"));
  EXPECT_THAT(says(-1, 2), HasSubstr("there is no replica -1 of 2"));
  EXPECT_THAT(says(1, 1), HasSubstr("there is no replica 1 of 1: replicas are 0"));
  EXPECT_EQ(place({}, {}).replica, "");
}

TEST(Placement, LeavesTheShardToTheDaemonWhenAsked) {
  EXPECT_EQ(place({}, {.shard = -1}).shard, -1);
  EXPECT_EQ(place({}, {.shard = -1}).num_shards, -1);
}

TEST(Address, IsTheOptionElseTheEnvironmentsElseTheSystems) {
  const auto none = [](const std::string&) { return std::optional<std::string>(); };
  const auto some = [](const std::string&) { return std::optional<std::string>("/tmp/d/"); };
  EXPECT_EQ(find_address({}, none), "/run/spdld");
  EXPECT_EQ(find_address({}, some), "/tmp/d");
  EXPECT_EQ(find_address({.address = "/a//"}, some), "/a");
}

}  // namespace
}  // namespace spdld::client
