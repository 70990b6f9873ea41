// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <random>
#include <thread>

#include "stream/stream.h"
#include "tests/unit/stream/gpu_fixture.h"

namespace spdld::stream {
namespace {

using testing::GpuReader;
using testing::GpuReaderPtr;
using testing::HandGpuPtr;
using testing::kSteps;

constexpr std::size_t kDeviceCredits = testing::kDeviceSlots - 1;
constexpr std::size_t kMostReaders = 5;
constexpr std::size_t kMostInTheMaking = 3;

// A consumer as far as its stream sees it: asks for a batch when it has joined, was told that one
// may be there, or has gained a credit; else it waits.
struct DrawnConsumer {
  GpuReaderPtr reader;
  std::uint32_t replica = 0;
  HandGpuPtr gpu;
  Index next = 0;
  Index until = kSteps;
  std::vector<GpuReader::Batch> leases = {};
  bool awake = true;
  std::uint64_t seen = 0;

  bool is_through() const { return next >= until; }
};

// One epoch of one stream, with whatever a seed brings.
class Schedule {
 public:
  Schedule(unsigned seed, std::shared_ptr<Stream> stream, std::shared_ptr<const engine::Plan> plan,
           std::vector<HandGpuPtr> gpus, std::uint32_t replicas)
      : random_(seed),
        stream_(std::move(stream)),
        plan_(std::move(plan)),
        gpus_(std::move(gpus)),
        replicas_(replicas) {}

  void run() {
    come(0, 0, 0);
    for (std::uint32_t replica = 1; replica < replicas_; ++replica) absent_[replica] = 0;
    const bool may_fail = one_in(4);
    const int actions = static_cast<int>(pick(600));
    for (int i = 0; i < actions && !stream_->ended(); ++i) act(may_fail);
    finish();
  }

 private:
  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  bool one_in(std::uint64_t count) { return pick(count) == 0; }
  DrawnConsumer* any() {
    if (consumers_.empty()) return nullptr;
    return &*std::next(consumers_.begin(), static_cast<long>(pick(consumers_.size())));
  }
  HandGpuPtr some_gpu() {
    const auto at = pick(gpus_.size() + 1);
    if (at == gpus_.size() || lost_ == gpus_[at]) return nullptr;
    return gpus_[at];
  }

  void act(bool may_fail) {
    switch (pick(12)) {
      case 0:
      case 1: begin(); break;
      case 2:
      case 3: finish_one(pick(kMostInTheMaking)); break;
      case 4:
      case 5: (void)complete(gpus_[pick(gpus_.size())]); break;
      case 6: (void)gpus_[pick(gpus_.size())]->run_posted(); break;
      case 7:
      case 8:
        if (DrawnConsumer* const one = any()) (void)read(*one);
        break;
      case 9:
        if (DrawnConsumer* const one = any(); one != nullptr)
          (void)release(*one, pick(kDeviceCredits));
        break;
      case 10: come_or_go(); break;
      default:
        if (one_in(4)) {
          jump();
        } else if (may_fail && one_in(20) && lost_ == nullptr) {
          lost_ = gpus_[pick(gpus_.size())];
        }
    }
    drop_failed();
  }

  void begin() {
    if (in_the_making_.size() == kMostInTheMaking) return;
    if (const auto order = port().open()) in_the_making_.push_back(*order);
  }
  bool finish_one(std::size_t which) {
    if (which >= in_the_making_.size()) return false;
    const engine::BatchOrder order = in_the_making_[which];
    in_the_making_.erase(in_the_making_.begin() + static_cast<long>(which));
    testing::stamp(*plan_, order);
    port().commit(order);
    return true;
  }
  bool complete(const HandGpuPtr& gpu) {
    return gpu->complete(gpu == lost_ ? Status(Code::kUnavailable, "lost") : Status());
  }
  bool read(DrawnConsumer& one) {
    if (one.reader->told() != one.seen) one.awake = true;
    if (!one.awake || one.is_through() || one.leases.size() == kDeviceCredits) return false;
    one.seen = one.reader->told();
    auto batch = one.reader->poll(*stream_, one.next);
    one.awake = batch.has_value();
    if (!batch) return false;
    EXPECT_EQ(batch->on_gpu(), one.gpu != nullptr);
    one.leases.push_back(std::move(*batch));
    ++one.next;
    return true;
  }
  static bool release(DrawnConsumer& one, std::size_t which) {
    if (which >= one.leases.size()) return false;
    one.reader->release(one.leases[which]);
    one.leases.erase(one.leases.begin() + static_cast<long>(which));
    one.awake = true;
    return true;
  }
  void come(Index from, std::uint32_t replica, JobTag job) {
    DrawnConsumer one{
        .reader = std::make_shared<GpuReader>(++last_holder_, replicas_ > 1 ? 1 : job + 1),
        .replica = replica,
        .gpu = some_gpu(),
        .next = from};
    if (replicas_ == 1 && one_in(3)) one.until = 1 + pick(kSteps);
    ReaderTerms terms{.holder = one.reader->holder(),
                      .job = one.reader->job,
                      .replica = replica,
                      .next = from,
                      .until = one.until,
                      .open_epochs = 1};
    if (one.gpu != nullptr) {
      // Their memory was taken beforehand, or comes when the GPU's thread is there.
      if (one_in(2)) {
        terms.on_gpu = testing::slots_of(*stream_->pool(), one.gpu, stream_->device_layout(),
                                         testing::kDeviceSlots);
      } else {
        auto slots = stream_->pool()->on(one.gpu, stream_->device_layout(), testing::kDeviceSlots);
        ASSERT_TRUE(slots);
        terms.on_gpu = *slots;
      }
    }
    const auto joined = stream_->join(one.reader, terms, kNoIndex);
    if (!joined) return;  // there is nothing left for it
    one.next = *joined;   // what is before would be made for it elsewhere
    absent_.erase(replica);
    consumers_.push_back(std::move(one));
  }
  void come_or_go() {
    if (replicas_ > 1) {
      if (!absent_.empty() && one_in(2)) {
        const auto [replica, from] = *absent_.begin();
        come(from, replica, 1);
      } else if (consumers_.size() > 1 && one_in(4)) {
        DrawnConsumer* const one = any();
        absent_[one->replica] = one->next;
        go(*one, true);
      }
      return;
    }
    if (consumers_.size() < kMostReaders && one_in(2)) {
      come(0, 0, pick(3));
    } else if (consumers_.size() > 1) {
      go(*any(), false);
    }
  }
  // Its process has died: it gives back all that it has.
  void go(DrawnConsumer& one, bool away) {
    stream_->leave(one.reader->holder(), away);
    while (release(one, 0)) {
    }
    consumers_.remove_if([&](const DrawnConsumer& known) { return &known == &one; });
  }
  void jump() {
    DrawnConsumer* const one = any();
    if (one == nullptr) return;
    const Index to = one->next + pick(4);
    if (to >= one->until || !stream_->jump(one->reader->holder(), to, 0)) return;
    one->next = to;
    one->awake = true;
  }
  void drop_failed() {
    for (auto one = consumers_.begin(); one != consumers_.end();) {
      const auto here = one++;
      if (!here->reader->failure()) continue;
      EXPECT_EQ(here->gpu, lost_);
      while (release(*here, 0)) {
      }
      consumers_.erase(here);
    }
  }

  // From now on everybody does what they can; so everybody comes to the end.
  void finish() {
    for (const auto& [replica, from] : absent_) stream_->dismiss(1, replica);
    for (bool goes_on = true; goes_on;) {
      const std::size_t in_the_making = in_the_making_.size();
      begin();
      goes_on = in_the_making_.size() > in_the_making;
      goes_on = finish_one(0) || goes_on;
      for (const HandGpuPtr& gpu : gpus_) {
        goes_on = complete(gpu) || goes_on;
        goes_on = gpu->run_posted() || goes_on;
      }
      drop_failed();
      for (DrawnConsumer& one : consumers_) goes_on = read(one) || release(one, 0) || goes_on;
    }
    for (const DrawnConsumer& one : consumers_)
      EXPECT_TRUE(one.is_through()) << "waits for ever at " << one.next;
    while (!consumers_.empty()) go(consumers_.front(), false);
    while (finish_one(0)) {
    }
    for (const HandGpuPtr& gpu : gpus_) gpu->settle();
  }

  engine::StreamPort& port() { return *stream_; }

  std::minstd_rand random_;
  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<const engine::Plan> plan_;
  const std::vector<HandGpuPtr> gpus_;
  const std::uint32_t replicas_;
  std::list<DrawnConsumer> consumers_;
  std::map<std::uint32_t, Index> absent_;  // replicas that are awaited, and from where on
  std::vector<engine::BatchOrder> in_the_making_;
  HandGpuPtr lost_;
  delivery::HolderId last_holder_ = 0;
};

#ifdef SPDLD_THREAD_SANITIZED
constexpr unsigned kSeeds = 10;  // of one thread
#elif defined(SPDLD_SANITIZED)
constexpr unsigned kSeeds = 150;
#else
constexpr unsigned kSeeds = 600;
#endif

class StreamGpuSchedulesTest : public testing::GpuFixture {
 protected:
  void play(unsigned seed, std::uint32_t replicas) {
    const auto stream = make(replicas);
    const auto pool = stream->pool();
    Schedule(seed, stream, plan_, {gpu_, other_gpu_}, replicas).run();
    EXPECT_TRUE(pool->slots().idle());
    EXPECT_EQ(pool->slots().counts().bad_releases, 0U);
  }
};

TEST_F(StreamGpuSchedulesTest, JobsAreEachGivenTheirStepsWhateverTheOrder) {
  for (unsigned seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    play(seed, 1);
  }
}

TEST_F(StreamGpuSchedulesTest, ReplicasAreEachGivenTheirStepsWhateverTheOrder) {
  for (unsigned seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    play(seed, 2 + seed % 2);
  }
}

// For the sanitizer of threads: everything at once, on threads of its own.
TEST_F(StreamGpuSchedulesTest, AllThreadsMayUseAStreamAtOnce) {
  const auto stream = make();
  std::vector<GpuReaderPtr> readers;
  for (const HandGpuPtr& gpu : {gpu_, gpu_, other_gpu_, HandGpuPtr()})
    readers.push_back(joined(*stream, gpu, static_cast<JobTag>(readers.size() + 1)));
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!over) {
      if (produce(*stream, 1) == 0) std::this_thread::yield();
    }
  });
  for (const HandGpuPtr& gpu : {gpu_, other_gpu_}) {
    threads.emplace_back([&over, gpu] {
      while (!over) {
        if (!gpu->complete() && !gpu->run_posted()) std::this_thread::yield();
      }
    });
  }
  std::atomic<std::size_t> left{readers.size()};
  for (const GpuReaderPtr& one : readers) {
    threads.emplace_back([&, one] {
      for (Index at = 0; at < 3 * kSteps; ++at) {
        std::optional<GpuReader::Batch> batch;
        while (!(batch = one->poll(*stream, at))) std::this_thread::yield();
        one->release(*batch);
      }
      stream->leave(one->holder());
      --left;
    });
  }
  while (left > 0) std::this_thread::yield();
  over = true;
  for (std::thread& thread : threads) thread.join();
  settle();
  EXPECT_TRUE(stream->ended());
  EXPECT_TRUE(stream->pool()->slots().idle());
}

}  // namespace
}  // namespace spdld::stream
