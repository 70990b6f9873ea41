// SPDX-License-Identifier: Apache-2.0
#include "ctl/joint_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "base/mutex.h"
#include "base/text/counted.h"
#include "ctl/failure.h"
#include "ctl/interrupt.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{20};  // for Ctrl-C, for a refusal elsewhere, for silence
// A point must be so far ahead at the fastest rank's pace, and three times as far as asking took:
// by then the ranks have read on, and to do it takes as long again.
constexpr double kNearestS = 10;
constexpr double kAskingTimes = 3;
// Beyond what any rank does; bounds what a daemon says.
constexpr double kMostStepsPerS = 1e9;
constexpr double kMostEpochs = 1e15;

// One daemon and what has become of its part.
struct Part {
  std::string directory;
  std::unique_ptr<Daemon> daemon;
  std::optional<v1::SwapResult> answer;  // of the dry run; has one job and its outlook
  std::optional<v1::SwapResult> done;
  std::optional<v1::SwapResult> undone;
  std::optional<Failure> failure;  // of what was tried last

  // Of the call under way.
  std::atomic<bool> running = false;
  std::atomic<std::uint64_t> heard{0};  // messages
  bool cancelled = false;

  const v1::JobSwap& job() const { return answer->jobs(0); }
  bool refused() const { return failure && !done && !failure->transient(); }
  // It had the change before this call.
  bool known() const { return answer && job().outlook().known(); }
  // Names the effects of a change that undoing it has not taken back. Empty: there are none. Only
  // for a part whose change was undone.
  std::string left_behind() const;
};

std::string seconds(double s) { return fmt::format("{:.1f} s", s); }

// In the order of steps.
auto ordered(const v1::StepAt& at) { return std::make_tuple(at.epoch(), at.step()); }

// From `from` to `to`, which is not before it. Numbers are a daemon's word, and may be any.
double steps_between(const v1::StepAt& from, const v1::StepAt& to, std::uint64_t per_epoch) {
  return static_cast<double>(to.epoch() - from.epoch()) * static_cast<double>(per_epoch) +
         static_cast<double>(to.step()) - static_cast<double>(from.step());
}

std::string Part::left_behind() const {
  std::string left;
  for (const v1::JobSwap& job : done->jobs()) {
    for (const v1::PlannedChange& change : job.replaces())
      left += fmt::format("; the change to version {} at {} does not come any more",
                          change.version(), show_place(change.from()));
  }
  const std::uint32_t now = undone->pipeline().version();
  const bool as_before = done->unchanged()
                             ? undone->unchanged()
                             : !undone->unchanged() && now < done->pipeline().version();
  if (!as_before) left += fmt::format("; new jobs get version {}", now);
  return left;
}

class Joint {
 public:
  Joint(const JointSwap& asked, const Daemon::OnProgress& on_progress, const NowMs& now)
      : asked_(asked), on_progress_(on_progress), now_(now) {
    for (const std::string& directory : asked.directories) {
      Part& part = parts_.emplace_back();
      part.directory = directory;
      part.daemon = std::make_unique<Daemon>(directory, asked.timeout);
    }
  }

  std::vector<v1::SwapResult> run() {
    const milliseconds began = now_();
    ask();
    check_answers();
    check_point(std::chrono::duration<double>(now_() - began).count());
    change();
    return results();
  }

 private:
  // Runs `work` for each part, all at once; a Failure of one is kept with it. Once `hopeless` all
  // calls are cancelled, and before that those of daemons that are silent.
  template <typename Work, typename Hopeless>
  void on_each(const Work& work, const Hopeless& hopeless) {
    std::vector<milliseconds> heard_at(parts_.size(), now_());
    std::vector<std::future<void>> running;
    for (Part& part : parts_) {
      part.running = true;
      part.cancelled = false;
      running.push_back(std::async(std::launch::async, [&work, &part] {
        try {
          work(part);
        } catch (const Failure& failure) {
          part.failure = failure;
        } catch (const Cancelled&) {
          part.cancelled = true;
        }
        part.running = false;
      }));
    }
    std::vector<std::uint64_t> heard(parts_.size());
    std::vector<bool> silent(parts_.size());
    for (std::future<void>& one : running) {
      while (one.wait_for(kLookAgain) != std::future_status::ready) {
        show_progress();
        const bool all = hopeless();
        const milliseconds now = now_();
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          if (const std::uint64_t messages = parts_[i].heard; messages != heard[i]) {
            heard[i] = messages;
            heard_at[i] = now;
          }
          if (parts_[i].running && now - heard_at[i] > asked_.timeout) silent[i] = true;
          if (all || silent[i]) parts_[i].daemon->cancel();
        }
      }
    }
    for (std::future<void>& one : running) one.get();
    const double timeout_s = std::chrono::duration<double>(asked_.timeout).count();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!silent[i] || !parts_[i].cancelled) continue;
      parts_[i].failure.emplace(
          kFailed, fmt::format("it has said nothing for {}", seconds(timeout_s)), true);
    }
  }

  Daemon::OnProgress progress_of(Part& part) {
    return [this, &part](const v1::Progress& progress) {
      ++part.heard;
      v1::Progress named = progress;
      named.set_what(part.directory + ": " + progress.what());
      MutexLock lock(progress_mutex_);
      progress_[part.directory] = std::move(named);
    };
  }

  // On the main thread.
  void show_progress() {
    std::map<std::string, v1::Progress> latest;
    {
      MutexLock lock(progress_mutex_);
      latest.swap(progress_);
    }
    for (const auto& [directory, progress] : latest) on_progress_(progress);
  }

  void ask() {
    std::atomic<bool> hopeless = false;  // set by the thread that is refused first
    on_each(
        [&](Part& part) {
          try {
            v1::SwapResult answer =
                part.daemon->swap(asked_.text, asked_.swap, true, progress_of(part));
            if (answer.jobs_size() != 1 || !answer.jobs(0).has_outlook())
              throw Failure(kFailed,
                            "its answer says nothing of the job: restart the daemon as "
                            "the version of this spdlctl");
            part.answer = std::move(answer);
          } catch (const Failure&) {
            hopeless = true;
            throw;
          }
        },
        [&] { return hopeless || interrupt_.requested(); });
  }

  void check_answers() {
    if (interrupt_.requested()) give_up("interrupted");
    std::string why;
    for (const Part& part : parts_) {
      if (!part.failure) continue;
      if (!why.empty()) why += '\n';
      why += fmt::format("{} {}: {}", part.directory,
                         part.failure->exit_code() == kUnreachable ? "is gone"
                         : part.refused()                          ? "refused"
                                                                   : "did not answer",
                         part.failure->what());
    }
    if (!why.empty()) give_up(why);
    const Part& first = parts_.front();
    for (const Part& part : parts_) {
      const std::string& digest = part.answer->pipeline().order_digest();
      const std::string& expected = first.answer->pipeline().order_digest();
      if (digest == expected) continue;
      give_up(
          fmt::format("{} and {} do not list the same data (order digests {} and {}), and one "
                      "job's shards must: let them see the same files",
                      first.directory, part.directory, expected, digest));
    }
    const Part* placed = nullptr;  // the first that changes at a point, and not at once
    for (const Part& part : parts_) {
      if (part.job().tuned()) continue;
      if (placed == nullptr) placed = &part;
      if (ordered(part.job().from()) == ordered(placed->job().from())) continue;
      give_up(
          fmt::format("the job would change at {} on {}, and at {} on {}: name a point that "
                      "all of them have, or roll it back there first",
                      show_place(placed->job().from()), placed->directory,
                      show_place(part.job().from()), part.directory));
    }
  }

  // Until all know of the change no rank must be there. What an earlier call has begun is ended
  // all the same: one that is too late refuses.
  void check_point(double asking_s) {
    const Part* furthest = nullptr;
    double steps_per_s = 0;
    for (const Part& part : parts_) {
      if (part.known()) return;
      if (part.job().tuned()) continue;  // at once
      const v1::SwapOutlook& outlook = part.job().outlook();
      if (!outlook.has_steps_per_s())
        give_up(
            fmt::format("how fast the ranks of job '{}' at {} read is not known yet, since one "
                        "has only just come: try again in a few seconds",
                        asked_.swap.job(), part.directory));
      steps_per_s = std::max(steps_per_s, std::min(outlook.steps_per_s(), kMostStepsPerS));
      if (furthest == nullptr ||
          ordered(outlook.frontier()) > ordered(furthest->job().outlook().frontier()))
        furthest = &part;
    }
    if (furthest == nullptr || !(steps_per_s > 0)) return;
    const v1::StepAt& frontier = furthest->job().outlook().frontier();
    const std::uint64_t per_epoch = furthest->job().outlook().steps_per_epoch();
    const v1::StepAt& at = furthest->job().from();
    const double ahead =
        ordered(at) < ordered(frontier) ? -1 : steps_between(frontier, at, per_epoch);
    const double needed_s = std::max(kNearestS, kAskingTimes * asking_s);
    const double needed = std::ceil(steps_per_s * needed_s);
    if (ahead >= needed) return;
    give_up(
        fmt::format("{} is too near: the next step on {} is {}, and at {:.1f} steps/s a rank "
                    "may be there in {}. A change must be {} ahead, for all daemons to know of "
                    "it in time: --at {} is the nearest point that will do",
                    show_place(at), furthest->directory, show_place(frontier), steps_per_s,
                    seconds(std::max(0.0, ahead) / steps_per_s), seconds(needed_s),
                    at_option(nearest(frontier, needed, per_epoch, at.step() == 0))));
  }

  static v1::StepAt nearest(const v1::StepAt& frontier, double steps, std::uint64_t per_epoch,
                            bool epoch_start) {
    const double step = static_cast<double>(frontier.step()) + steps;
    const auto each = static_cast<double>(std::max<std::uint64_t>(per_epoch, 1));
    const double epochs = std::min(std::floor(step / each), kMostEpochs);
    v1::StepAt at;
    at.set_epoch(frontier.epoch() + static_cast<std::uint64_t>(epochs));
    at.set_step(static_cast<std::uint64_t>(std::fmod(step, each)));
    if (!epoch_start || at.step() == 0) return at;
    at.set_epoch(at.epoch() + 1);
    at.set_step(0);
    return at;
  }

  void change() {
    const auto never = [] { return false; };
    on_each(
        [&](Part& part) {
          part.done = part.daemon->swap(asked_.text, asked_.swap, false, progress_of(part));
        },
        never);
    if (std::none_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.refused(); }))
      return;
    on_each([&](Part& part) { undo(part); }, never);
  }

  void undo(Part& part) {
    if (!part.done || part.known()) return;
    v1::RollbackRequest request;
    request.set_pipeline(part.done->pipeline().name());
    request.set_version(part.job().outlook().version_before());
    *request.mutable_swap() = asked_.swap;
    part.undone = part.daemon->rollback(request, progress_of(part));
  }

  std::vector<v1::SwapResult> results() const {
    const auto all = [&](const auto& holds) {
      return std::all_of(parts_.begin(), parts_.end(), holds);
    };
    if (all([](const Part& part) { return part.done && !part.undone; })) {
      std::vector<v1::SwapResult> done;
      for (const Part& part : parts_) done.push_back(*part.done);
      return done;
    }
    const bool none = all([](const Part& part) { return part.undone || part.refused(); });
    std::string text =
        fmt::format("job '{}' does not change on all daemons at {}:", asked_.swap.job(),
                    show_place(asked_.swap.step()));
    if (none) {
      const bool as_before =
          all([](const Part& part) { return part.refused() || part.left_behind().empty(); });
      text = as_before ? "nothing has changed:"
                       : fmt::format("job '{}' changes on no daemon:", asked_.swap.job());
    }
    bool ends = true;
    std::string undoing;
    for (const Part& part : parts_) {
      text += fmt::format("\n  {}: {}", part.directory, outcome(part));
      ends = ends && !part.refused();
      if (!part.undone && !part.refused()) undoing += undo_text(part);
    }
    if (none) throw Failure(kFailed, text);
    if (ends) text += fmt::format("\nto end it:\n  {}", asked_.command);
    if (!undoing.empty()) text += "\nto undo it, before a rank is there:" + undoing;
    throw Failure(kFailed, text);
  }

  static std::string outcome(const Part& part) {
    if (part.undone) return "has changed, and goes on as before again" + part.left_behind();
    if (part.done && part.failure)
      return fmt::format("changes, and could not be told to go on as before: {}",
                         part.failure->what());
    if (part.done) return "changes";
    if (part.refused()) return fmt::format("refused: {}", part.failure->what());
    return fmt::format("not known to change: {}", part.failure->what());
  }

  // On a line of its own; empty where the job has run nothing else.
  std::string undo_text(const Part& part) const {
    const std::uint32_t before = part.job().outlook().version_before();
    if (part.known() && before == part.job().version()) return {};
    return "\n  " +
           shell_command({"spdlctl", "--address", part.directory, "rollback",
                          part.answer->pipeline().name(), "--to", std::to_string(before), "--job",
                          asked_.swap.job(), "--at", at_option(asked_.swap.step())});
  }

  [[noreturn]] void give_up(const std::string& why) const {
    std::string earlier;
    for (const Part& part : parts_) {
      if (part.known()) earlier += undo_text(part);
    }
    if (!earlier.empty()) earlier = "\nto undo what an earlier command has done:" + earlier;
    throw Failure(kFailed, fmt::format("nothing has changed: {}{}", why, earlier));
  }

  const JointSwap& asked_;
  const Daemon::OnProgress& on_progress_;
  const NowMs& now_;
  const Interrupt interrupt_;
  std::deque<Part> parts_;
  Mutex progress_mutex_;
  // Each daemon's last message that show_progress() has not shown yet, by its directory.
  std::map<std::string, v1::Progress> progress_ SPDLD_GUARDED_BY(progress_mutex_);
};

}  // namespace

NowMs steady_now_ms() {
  return [] {
    return std::chrono::duration_cast<milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  };
}

std::vector<v1::SwapResult> swap_everywhere(const JointSwap& joint,
                                            const Daemon::OnProgress& on_progress,
                                            const NowMs& now) {
  return Joint(joint, on_progress, now).run();
}

}  // namespace spdld::ctl
