// SPDX-License-Identifier: Apache-2.0
#include "observe/http_pages.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "observe/metrics.h"

namespace spdld::observe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFresh{1};
constexpr std::size_t kMostKept = 16;  // texts, of as many users
constexpr unsigned kUnavailable = 503;

// By user. The server's thread alone calls it.
class Metrics {
 public:
  Metrics(session::Service& service, bool jobs) : service_(service), jobs_(jobs) {}

  HttpPage for_peer(const std::optional<Peer>& peer) {
    const auto now = Clock::now();
    std::erase_if(made_, [&](const auto& made) { return now - made.second.at >= kFresh; });
    if (made_.size() >= kMostKept) made_.clear();
    job::Caller caller = peer.value_or(Peer{});
    if (!peer && jobs_) caller = {{.uid = Credentials::kDaemon}, ::getpid()};
    const bool totals_alone = !peer && !jobs_;
    const auto [found, is_new] = made_.try_emplace({totals_alone, caller.uid});
    if (is_new) {
      const Observed observed =
          totals_alone ? totals_of(caller, service_) : observed_by(caller, service_);
      found->second = {.at = now, .page = http_page(metrics_text(observed))};
    }
    return found->second.page;
  }

 private:
  struct Made {
    Clock::time_point at;
    HttpPage page;
  };
  session::Service& service_;
  const bool jobs_;
  std::map<std::pair<bool, uid_t>, Made> made_;
};

}  // namespace

HttpPages http_pages(session::Service& service, bool jobs, NotReady not_ready) {
  HttpPages pages;
  pages["/metrics"] = [metrics = std::make_shared<Metrics>(service, jobs)](const auto& peer) {
    return metrics->for_peer(peer);
  };
  pages["/healthz"] = [](const auto&) { return http_page("ok\n"); };
  pages["/readyz"] = [not_ready = std::move(not_ready)](const auto&) {
    const std::optional<std::string> why = not_ready();
    return why ? http_page(*why + "\n", kUnavailable) : http_page("ready\n");
  };
  return pages;
}

}  // namespace spdld::observe
