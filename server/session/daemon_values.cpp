// SPDX-License-Identifier: Apache-2.0
#include "session/daemon_values.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace spdld::session {

const DaemonValue* DaemonValues::find(const std::string& key) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const DaemonValue& value) { return value.key == key; });
  return found == values_.end() ? nullptr : &*found;
}

DaemonValues::Texts DaemonValues::in_force(const Texts& tuned) const {
  Texts texts = configured_;
  for (const auto& [key, text] : tuned) texts[key] = text;
  return texts;
}

Status DaemonValues::change(const Texts& from, const Texts& to) {
  for (const auto& [key, text] : to) {
    const auto before = from.find(key);
    const DaemonValue* const value = find(key);
    if (value == nullptr || (before != from.end() && before->second == text)) continue;
    if (Status set = value->set(text); !set.ok()) {
      for (const auto& [other, old] : from) {
        if (other == key) break;
        if (const DaemonValue* const known = find(other)) (void)known->set(old);
      }
      return set;
    }
  }
  return {};
}

std::vector<std::string> DaemonValues::configure(Texts configured) {
  MutexLock lock(mutex_);
  std::vector<std::string> told;
  const bool at_start = configured_.empty();
  const Texts before = std::exchange(configured_, std::move(configured));
  if (at_start) return told;  // the daemon was made with them
  for (const auto& [key, text] : configured_) {
    const auto old = before.find(key);
    if (old != before.end() && old->second == text) continue;
    if (const auto tuned = tuned_.find(key); tuned != tuned_.end()) {
      told.push_back(key + " is " + text + " in the configuration now, and stays " + tuned->second +
                     ", as an admin has said, until 'spdlctl tune daemon --reset " + key + "'");
    } else if (Status set = find(key)->set(text); set.ok()) {
      told.push_back(key + " is " + text + " from now on, as the configuration says");
    } else {
      told.push_back(set.message());
    }
  }
  return told;
}

std::vector<std::string> DaemonValues::restore() {
  MutexLock lock(mutex_);
  auto kept = store_.tuned();
  if (!kept) return {"what was tuned is not known: " + kept.error().message()};
  std::vector<std::string> told;
  for (const auto& [key, text] : *kept) {
    const DaemonValue* const value = find(key);
    const Status set =
        value == nullptr ? Status(Code::kNotFound, "there is no such value") : value->set(text);
    if (set.ok()) {
      tuned_.emplace(key, text);
    } else {
      told.push_back(key + "=" + text + ", as it was tuned, does not count: " + set.message());
    }
  }
  return told;
}

Result<std::vector<LiveValue>> DaemonValues::tune(const job::Caller& caller,
                                                  const TrustedUsers& trusted,
                                                  const TuneRequest& request) {
  if (!trusted.is_admin(caller.uid))
    return error(Code::kPermissionDenied, "only admins tune the daemon, and " +
                                              trusted.who(caller.uid) +
                                              " is not in access.admins: ask an admin");
  MutexLock lock(mutex_);
  Texts next = tuned_;
  for (const std::string& key : request.reset) {
    if (key == "all") {
      next.clear();
    } else if (find(key) != nullptr) {
      next.erase(key);
    } else {
      next[key] = {};  // refused below
    }
  }
  for (const auto& [key, text] : request.set) next[key] = text;
  for (const auto& [key, text] : next) {
    if (find(key) != nullptr) continue;
    std::vector<std::string> known;
    for (const DaemonValue& value : values_) known.push_back(value.key);
    return tl::unexpected<Status>(no_such_value(key, known, "the daemon"));
  }
  if (next != tuned_) {
    const Texts before = in_force(tuned_);
    const Texts after = in_force(next);
    SPDLD_TRY(change(before, after));
    if (Status kept = store_.put_tuned(next); !kept.ok()) {
      (void)change(after, before);
      return tl::unexpected<Status>(std::move(kept));
    }
    tuned_ = std::move(next);
    spdlog::info("the daemon was tuned by uid {}: {}", caller.uid, text_of(request));
  }
  std::vector<LiveValue> values;
  for (const DaemonValue& value : values_) {
    const auto configured = configured_.find(value.key);
    values.push_back({.key = value.key,
                      .now = value.now(),
                      .configured = configured == configured_.end() ? "" : configured->second,
                      .range = value.range,
                      .means = value.means});
  }
  return values;
}

}  // namespace spdld::session
