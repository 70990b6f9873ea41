// SPDX-License-Identifier: Apache-2.0
#include "session/job_queues.h"

#include <gtest/gtest.h>

#include <future>
#include <new>
#include <string>
#include <vector>

namespace spdld::session {
namespace {

job::JobKey job_of(uid_t uid, const std::string& name) {
  return {.uid = uid, .job = name, .pipeline = "p"};
}

// Work that hangs until it is let go.
class Hung {
 public:
  JobQueues::Task task() {
    return [gone = gone_.get_future().share()] { gone.wait(); };
  }
  void let_go() { gone_.set_value(); }

 private:
  std::promise<void> gone_;
};

// Returns once it has been done.
void await_done(JobQueues& queues, const job::JobKey& job) {
  std::promise<void> done;
  ASSERT_TRUE(queues.post(job, [&done] { done.set_value(); }).ok());
  done.get_future().wait();
}

TEST(JobQueues, AJobThatHangsHoldsBackItsOwnWorkAlone) {
  JobQueues queues("test", 2);
  Hung hung;
  std::vector<int> done;
  ASSERT_TRUE(queues.post(job_of(1, "a"), hung.task()).ok());
  ASSERT_TRUE(queues.post(job_of(1, "a"), [&done] { done.push_back(1); }).ok());
  ASSERT_TRUE(queues.post(job_of(1, "a"), [&done] { done.push_back(2); }).ok());
  await_done(queues, job_of(1, "b"));
  await_done(queues, job_of(1, "b"));
  EXPECT_TRUE(done.empty());
  hung.let_go();
  await_done(queues, job_of(1, "a"));
  EXPECT_EQ(done, std::vector<int>({1, 2}));
}

TEST(JobQueues, AUsersFurtherJobsWaitForAThreadAndOtherUsersDoNot) {
  JobQueues queues("test", 1);
  Hung hung;
  bool done = false;
  ASSERT_TRUE(queues.post(job_of(1, "a"), hung.task()).ok());
  ASSERT_TRUE(queues.post(job_of(1, "b"), [&done] { done = true; }).ok());
  await_done(queues, job_of(2, "a"));
  EXPECT_FALSE(done);
  hung.let_go();
  await_done(queues, job_of(1, "b"));
  EXPECT_TRUE(done);
}

TEST(JobQueues, WorkThatThrowsLetsTheNextBegin) {
  JobQueues queues("test", 1);
  ASSERT_TRUE(queues.post(job_of(1, "a"), [] { throw std::bad_alloc(); }).ok());
  await_done(queues, job_of(1, "a"));
}

TEST(JobQueues, NothingIsDoneOnceTheyAreStopped) {
  JobQueues queues("test", 1);
  await_done(queues, job_of(1, "a"));
  queues.stop();
  EXPECT_TRUE(queues.post(job_of(1, "a"), [] { ADD_FAILURE() << "it was done"; }).ok());
  queues.stop();
}

}  // namespace
}  // namespace spdld::session
