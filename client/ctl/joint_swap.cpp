// SPDX-License-Identifier: Apache-2.0
#include "ctl/joint_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "ctl/failure.h"
#include "ctl/interrupt.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{20};  // for Ctrl-C, and for a refusal elsewhere
constexpr milliseconds kTryAgain{200};  // after a commit that got no answer

// One daemon and what has become of its part.
struct Part {
  std::string directory;
  std::unique_ptr<Daemon> daemon;  // null: the connection is lost
  std::optional<v1::SwapResult> prepared;
  milliseconds prepared_at{0};
  std::optional<v1::SwapResult> committed;
  std::optional<Failure> failure;  // of what was tried last

  milliseconds hold_until() const {
    // What a daemon says is bounded here, so that no sum overflows.
    constexpr std::uint64_t kLongestMs = 86'400'000;
    return prepared_at + milliseconds(std::min(prepared->hold_ms(), kLongestMs));
  }
};

class Joint {
 public:
  Joint(const JointSwap& asked, const Daemon::OnProgress& on_progress, const Pace& pace)
      : asked_(asked), on_progress_(on_progress), pace_(pace) {
    for (const std::string& directory : asked.directories) {
      Part& part = parts_.emplace_back();
      part.directory = directory;
      part.daemon = std::make_unique<Daemon>(directory, asked.timeout);
    }
  }

  std::vector<v1::SwapResult> run() {
    prepare();
    check_prepared();
    commit_first();
    on_each(parts_.begin() + 1, [&](Part& part) { commit(part, true); });
    return results();
  }

 private:
  using Parts = std::vector<Part>;

  // Runs `work` for each part from `begin` on, all at once; a Failure of one is kept with it.
  // `meanwhile` is called again and again until all are done.
  template <typename Work, typename Meanwhile>
  void on_each(Parts::iterator begin, const Work& work, const Meanwhile& meanwhile) {
    std::vector<std::future<void>> running;
    for (auto part = begin; part != parts_.end(); ++part) {
      running.push_back(std::async(std::launch::async, [&work, &part = *part] {
        try {
          work(part);
        } catch (const Failure& failure) {
          part.failure = failure;
        }
      }));
    }
    for (std::future<void>& one : running) {
      while (one.wait_for(kLookAgain) != std::future_status::ready) meanwhile();
    }
    for (std::future<void>& one : running) one.get();
  }
  template <typename Work>
  void on_each(Parts::iterator begin, const Work& work) {
    on_each(begin, work, [] {});
  }

  void prepare() {
    Mutex progress_mutex;
    std::atomic<bool> hopeless = false;  // set by whichever thread is refused first
    const auto prepare_one = [&](Part& part) {
      try {
        part.prepared =
            part.daemon->prepare_swap(asked_.text, asked_.swap, [&](const v1::Progress& progress) {
              v1::Progress named = progress;
              named.set_what(part.directory + ": " + progress.what());
              MutexLock lock(progress_mutex);
              on_progress_(named);
            });
        part.prepared_at = pace_.now();
        MutexLock lock(window_mutex_);
        if (!first_prepared_ || part.prepared_at < *first_prepared_)
          first_prepared_ = part.prepared_at;
        const milliseconds hold = part.hold_until() - part.prepared_at;
        if (shortest_.empty() || hold < shortest_hold_) {
          shortest_ = part.directory;
          shortest_hold_ = hold;
        }
      } catch (const Cancelled&) {
      } catch (const Failure&) {
        hopeless = true;
        throw;
      }
    };
    on_each(parts_.begin(), prepare_one, [&] {
      // Whoever has prepared holds its shards: there is no use in waiting until none can commit.
      if (!hopeless && !interrupt_.requested() && !too_late()) return;
      for (Part& part : parts_) part.daemon->cancel();
    });
  }

  // Throws unless all have prepared the same and there is time to commit it.
  void check_prepared() {
    if (interrupt_.requested()) give_up("interrupted");
    give_up_on_failures();
    for (const Part& part : parts_) {
      if (!part.prepared) give_up(*too_late());
    }
    for (const Part& part : parts_) {
      const std::string& digest = part.prepared->pipeline().order_digest();
      const std::string& first = parts_.front().prepared->pipeline().order_digest();
      if (digest == first) continue;
      give_up(
          fmt::format("{} and {} do not list the same data (order digests {} and {}), and one "
                      "job's shards must: let them see the same files",
                      parts_.front().directory, part.directory, first, digest));
    }
    for (const Part& part : parts_) check_point(part);
    // Preparing may take minutes, and a daemon that died in them must not split the job.
    on_each(parts_.begin(), [](Part& part) { part.daemon->stats(); });
    give_up_on_failures();
    if (const auto why = too_late()) give_up(*why);
    if (interrupt_.requested()) give_up("interrupted");
  }

  // Why it is, when more than half of the shortest hold has passed; time only makes it worse.
  std::optional<std::string> too_late() {
    MutexLock lock(window_mutex_);
    if (!first_prepared_) return std::nullopt;
    const milliseconds passed = pace_.now() - *first_prepared_;
    if (passed * 2 <= shortest_hold_) return std::nullopt;
    return fmt::format(
        "preparing took too long to commit safely: {} s since the first daemon was "
        "ready, and {} lets its shards go on after {} s: try again when the daemons "
        "have less to do",
        seconds(passed), shortest_, seconds(shortest_hold_));
  }

  // A daemon whose job runs this content already says from where, and changes nothing.
  void check_point(const Part& part) {
    for (const v1::JobSwap& job : part.prepared->jobs()) {
      const v1::StepAt& asked = asked_.swap.step();
      if (job.tuned() ||
          (job.from().epoch() == asked.epoch() && job.from().step() == asked.step())) {
        continue;
      }
      give_up(
          fmt::format("on {} the job runs this from {} on, and not from {}: name that place, "
                      "or roll it back there first",
                      part.directory, show_place(job.from()), show_place(asked)));
    }
  }

  void commit_first() {
    Part& first = parts_.front();
    commit(first, false);
    if (first.committed) return;
    const Failure failure = *first.failure;
    if (!failure.transient())
      give_up(fmt::format("{} refused to commit: {}", first.directory, failure.what()));
    // It may have committed and died, or be slow to say so: to abort there would be a guess.
    const std::string left = abort(parts_.begin() + 1);
    throw Failure(kFailed,
                  fmt::format("nothing has changed but perhaps on {}, which did not answer whether "
                              "it has committed: {}\nThe others go on as they were{}. '{}' shows "
                              "what it runs",
                              first.directory, failure.what(), left,
                              shell_command({"spdlctl", "--address", first.directory, "get", "jobs",
                                             asked_.swap.job()})));
  }

  // With `persist`, a commit that gets no answer is tried again for as long as the daemon holds.
  void commit(Part& part, bool persist) {
    part.failure.reset();
    while (true) {
      const milliseconds left = part.hold_until() - pace_.now();
      try {
        if (part.daemon == nullptr)
          part.daemon = std::make_unique<Daemon>(part.directory, asked_.timeout);
        part.committed =
            part.daemon->commit_swap(part.prepared->token(), std::max(left, milliseconds(1)));
        part.failure.reset();
        return;
      } catch (const Failure& failure) {
        part.failure = failure;
        part.daemon.reset();
      }
      if (!persist || !part.failure->transient()) return;
      pace_.pause(kTryAgain);
      if (pace_.now() >= part.hold_until()) return;
    }
  }

  std::vector<v1::SwapResult> results() const {
    std::vector<v1::SwapResult> done;
    std::string failed;
    for (const Part& part : parts_) {
      if (part.committed) {
        done.push_back(*part.committed);
        continue;
      }
      failed += fmt::format("\n  {}: not known to have changed: {}\n    to do it there: {}",
                            part.directory, part.failure->what(), asked_.alone(part.directory));
    }
    if (failed.empty()) return done;
    std::string changed;
    for (const Part& part : parts_) {
      if (part.committed) changed += fmt::format("\n  {}: changes", part.directory);
    }
    throw Failure(kFailed, fmt::format("job '{}' changes at {} on {} of {} daemons only:{}{}",
                                       asked_.swap.job(), show_place(asked_.swap.step()),
                                       done.size(), parts_.size(), changed, failed));
  }

  void give_up_on_failures() {
    std::string why;
    for (const Part& part : parts_) {
      if (!part.failure) continue;
      if (!why.empty()) why += '\n';
      const bool gone = part.failure->exit_code() == kUnreachable;
      why += fmt::format("{} {}: {}", part.directory, gone ? "is gone" : "refused",
                         part.failure->what());
    }
    if (!why.empty()) give_up(why);
  }

  [[noreturn]] void give_up(const std::string& why) {
    const std::string left = abort(parts_.begin());
    throw Failure(kFailed, fmt::format("nothing has changed: {}{}", why, left));
  }

  // Aborts what is prepared. Returns what could not be, for the end of a message.
  std::string abort(Parts::iterator begin) {
    on_each(begin, [&](Part& part) {
      part.failure.reset();
      if (!part.prepared) return;
      // A connection that has failed before is no use.
      part.daemon = std::make_unique<Daemon>(part.directory, asked_.timeout);
      part.daemon->abort_swap(part.prepared->token());
    });
    std::string left;
    for (auto part = begin; part != parts_.end(); ++part) {
      if (!part->failure) continue;
      left += fmt::format(
          "\n{} could not be told to abort: {}; it lets its shards go on by itself "
          "after {} s",
          part->directory, part->failure->what(), seconds(part->hold_until() - part->prepared_at));
    }
    return left;
  }

  static std::string seconds(milliseconds time) {
    return fmt::format("{:.1f}", static_cast<double>(time.count()) / 1000);
  }

  const JointSwap& asked_;
  const Daemon::OnProgress& on_progress_;
  const Pace& pace_;
  const Interrupt interrupt_;
  Parts parts_;

  Mutex window_mutex_;
  std::optional<milliseconds> first_prepared_ SPDLD_GUARDED_BY(window_mutex_);
  std::string shortest_ SPDLD_GUARDED_BY(window_mutex_);  // whose hold is, once one has prepared
  milliseconds shortest_hold_ SPDLD_GUARDED_BY(window_mutex_){0};
};

}  // namespace

Pace Pace::real() {
  return {[] {
            return std::chrono::duration_cast<milliseconds>(
                std::chrono::steady_clock::now().time_since_epoch());
          },
          [](milliseconds time) { std::this_thread::sleep_for(time); }};
}

std::vector<v1::SwapResult> swap_everywhere(const JointSwap& joint,
                                            const Daemon::OnProgress& on_progress,
                                            const Pace& pace) {
  return Joint(joint, on_progress, pace).run();
}

}  // namespace spdld::ctl
