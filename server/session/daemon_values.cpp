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

Status DaemonValues::set(const std::string& key, const std::string& text) const {
  const DaemonValue* const value = find(key);
  if (value == nullptr) return Status(Code::kNotFound, "there is no such value");
  SPDLD_ASSIGN(const DaemonValue::Setting setting, value->read(text));
  return setting();
}

DaemonValues::Configured DaemonValues::configure(const Texts& configured) {
  MutexLock lock(mutex_);
  Configured told;
  for (const auto& [key, text] : configured) {
    const auto [old, is_first] = configured_.try_emplace(key, text);
    if (is_first || old->second == text) continue;  // the daemon was made with the first ones
    if (const auto tuned = tuned_.find(key); tuned != tuned_.end()) {
      told.changed.push_back(key + " is " + text + " in the configuration now, and stays " +
                             tuned->second + ", as an admin has said, until 'spdlctl tune daemon " +
                             "--reset " + key + "'");
    } else if (Status done = set(key, text); done.ok()) {
      told.changed.push_back(key + " is " + text + " from now on, as the configuration says");
    } else {
      told.refused.push_back("the configuration's " + key + " stays " + old->second + ": " +
                             done.message());
      continue;
    }
    old->second = text;
  }
  return told;
}

std::vector<std::string> DaemonValues::restore() {
  MutexLock lock(mutex_);
  auto kept = store_.tuned();
  if (!kept) return {"what was tuned is not known: " + kept.error().message()};
  std::vector<std::string> told;
  for (const auto& [key, text] : *kept) {
    if (const Status done = set(key, text); done.ok()) {
      tuned_.emplace(key, text);
    } else {
      told.push_back(key + "=" + text + ", as it was tuned, does not count: " + done.message() +
                     "; 'spdlctl tune daemon --reset " + key + "' forgets it");
    }
  }
  return told;
}

Result<DaemonValues::Texts> DaemonValues::with(const TuneRequest& request) const {
  const auto no_such = [this](const std::string& key) {
    std::vector<std::string> known;
    known.reserve(values_.size());
    for (const DaemonValue& value : values_) known.push_back(value.key);
    return tl::unexpected<Status>(no_such_value(key, known, "the daemon"));
  };
  Texts next = tuned_;
  for (const std::string& key : request.reset) {
    if (key == "all") {
      next.clear();
    } else if (find(key) == nullptr) {
      return no_such(key);
    } else {
      next.erase(key);
    }
  }
  for (const auto& [key, text] : request.set) {
    if (find(key) == nullptr) return no_such(key);
    next[key] = text;
  }
  return next;
}

Result<std::vector<DaemonValue::Setting>> DaemonValues::settings(const Texts& next) const {
  std::vector<DaemonValue::Setting> settings;
  for (const auto& [key, configured] : configured_) {
    const auto before = tuned_.find(key);
    const auto after = next.find(key);
    const std::string& text = after == next.end() ? configured : after->second;
    if (text == (before == tuned_.end() ? configured : before->second)) continue;
    SPDLD_ASSIGN(DaemonValue::Setting setting, find(key)->read(text));
    settings.push_back(std::move(setting));
  }
  return settings;
}

Result<std::vector<LiveValue>> DaemonValues::tune(const job::Caller& caller,
                                                  const TrustedUsers& trusted,
                                                  const TuneRequest& request) {
  SPDLD_TRY(trusted.check_admin(caller.uid, "tune"));
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(Texts next, with(request));
  if (!request.changes_nothing()) {
    SPDLD_ASSIGN(const std::vector<DaemonValue::Setting> settings, this->settings(next));
    SPDLD_TRY(store_.put_tuned(next));
    tuned_ = std::move(next);
    spdlog::info("the daemon was tuned by uid {}: {}", caller.uid, text_of(request));
    for (const DaemonValue::Setting& setting : settings) SPDLD_TRY(setting());
  }
  std::vector<LiveValue> values;
  values.reserve(values_.size());
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
