// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>

#include "spdld/batch.h"
#include "spdld/loader.h"

// Links against libspdld.so, whose map names what it shows: what is missing there does not link.
namespace spdld {
namespace {

template <typename... Methods>
bool all_there(Methods... methods) {
  return ((methods != nullptr) && ...);
}

TEST(SharedLibrary, ShowsAllOfALoader) {
  EXPECT_TRUE(all_there(
      &Loader::next, &Loader::next_ahead, &Loader::handed, &Loader::mapped, &Loader::set_epoch,
      &Loader::epoch, &Loader::load_state, &Loader::state, &Loader::skip_steps, &Loader::apply,
      &Loader::steps_per_epoch, &Loader::items, &Loader::batch_size, &Loader::pipeline_version,
      &Loader::classes, &Loader::fingerprint, &Loader::server_stats, &Loader::stats, &Loader::shard,
      &Loader::num_shards, &Loader::job, &Loader::address, &Loader::close, &Loader::closed));
  Loader first = Loader::open({.pipeline = "p", .job = "", .rank = 0, .world_size = 1});
  Loader second = std::move(first);
  first = std::move(second);
  EXPECT_EQ(first.num_shards(), 1);
}

TEST(SharedLibrary, ShowsAllOfABatch) {
  EXPECT_TRUE(all_there(&Batch::epoch, &Batch::step, &Batch::rows, &Batch::pipeline_version,
                        &Batch::indices, &Batch::valid, &Batch::fields, &Batch::find, &Batch::text,
                        &Batch::owner, &Batch::private_data, &Batch::release, &Batch::released));
}

TEST(SharedLibrary, ThrowsWhatItsCallersCanCatch) {
  EXPECT_THROW(Loader::open({.rank = 0, .world_size = 1}), PipelineError);
  Loader loader = Loader::open({.pipeline = "p", .rank = 0, .world_size = 1});
  loader.close();
  EXPECT_THROW(loader.skip_steps(1), ConnectionError);
  EXPECT_THROW(loader.apply({{"a", "1"}}), Error);
}

}  // namespace
}  // namespace spdld
