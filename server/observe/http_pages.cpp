// SPDX-License-Identifier: Apache-2.0
#include "observe/http_pages.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "observe/metrics.h"

namespace spdld::observe {
namespace {

constexpr std::chrono::seconds kFresh{1};
constexpr std::size_t kMostKept = 16;  // texts, of as many users
constexpr unsigned kUnavailable = 503;

// By user. The server's thread alone calls it.
class Metrics {
 public:
  Metrics(session::Service& service, bool jobs, const Clock& clock)
      : service_(service), jobs_(jobs), clock_(clock) {}

  HttpPage for_peer(const std::optional<Peer>& peer) {
    const auto now = clock_.now();
    std::erase_if(made_, [&](const auto& made) { return now - made.second.at >= kFresh; });
    job::Caller caller = peer.value_or(Peer{});
    if (!peer && jobs_) caller = {{.uid = Credentials::kDaemon}, ::getpid()};
    const bool totals_alone = !peer && !jobs_;
    const std::pair key(totals_alone, caller.uid);
    if (const auto found = made_.find(key); found != made_.end()) return found->second.page;
    if (made_.size() >= kMostKept)
      made_.erase(
          std::ranges::min_element(made_, {}, [](const auto& made) { return made.second.at; }));
    const Observed observed =
        totals_alone ? totals_of(caller, service_) : observed_by(caller, service_);
    return made_.emplace(key, Made{.at = now, .page = http_page(metrics_text(observed))})
        .first->second.page;
  }

 private:
  struct Made {
    std::chrono::nanoseconds at{0};
    HttpPage page;
  };
  session::Service& service_;
  const bool jobs_;
  const Clock& clock_;
  std::map<std::pair<bool, uid_t>, Made> made_;
};

}  // namespace

HttpPages http_pages(session::Service& service, bool jobs, NotReady not_ready, const Clock& clock) {
  HttpPages pages;
  pages["/metrics"] = [metrics = std::make_shared<Metrics>(service, jobs, clock)](
                          const auto& peer) { return metrics->for_peer(peer); };
  pages["/healthz"] = [](const auto&) { return http_page("ok\n"); };
  pages["/readyz"] = [not_ready = std::move(not_ready)](const auto&) {
    const std::optional<std::string> why = not_ready();
    return why ? http_page(*why + "\n", kUnavailable) : http_page("ready\n");
  };
  return pages;
}

}  // namespace spdld::observe
