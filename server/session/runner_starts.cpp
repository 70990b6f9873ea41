// SPDX-License-Identifier: Apache-2.0
#include "session/runner_starts.h"

#include <algorithm>
#include <vector>

#include "spdld/runner.h"

namespace spdld::session {
namespace {

constexpr std::chrono::seconds kStartPatience{runner::kStartPatienceS};

}  // namespace

void RunnerStarts::ask(const Job& job, const engine::Run& run) {
  const std::vector<std::string> wanted = run.wanted_runners();
  if (wanted.empty()) return;
  std::vector<SessionPtr> able = job.attached();
  std::erase_if(
      able, [](const SessionPtr& session) { return session->closed || !session->starts_runners; });
  for (const std::string& pool : wanted) ask_one(able, job.tag, pool);
}

void RunnerStarts::ask(const SessionPtr& session, const std::vector<std::string>& pools) {
  if (!session->starts_runners) return;
  for (const std::string& pool : pools) ask_one({session}, {}, pool);
}

void RunnerStarts::ask_one(const std::vector<SessionPtr>& able, stream::JobTag job,
                           const std::string& pool) {
  if (able.empty()) return;
  const auto now = deps_.clock.now();
  MutexLock lock(mutex_);
  std::erase_if(asked_,
                [&](const auto& asked) { return now - asked.second.at >= 2 * kStartPatience; });
  const auto last = asked_.find({job, pool});
  if (last != asked_.end() && now - last->second.at < kStartPatience) return;
  auto next = able.begin();
  if (last != asked_.end()) {
    next = std::find_if(able.begin(), able.end(), [&](const SessionPtr& session) {
      return session->id > last->second.session;
    });
    if (next == able.end()) next = able.begin();
  }
  (*next)->connection->send_runners_wanted(pool);
  asked_[{job, pool}] = {.at = now, .session = (*next)->id};
}

}  // namespace spdld::session
