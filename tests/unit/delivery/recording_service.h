// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "delivery/data_server.h"

namespace spdld::test {

// Writes down what the data server tells it, in words, and lets a test wait for it.
class RecordingService final : public delivery::DataService {
 public:
  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override {
    MutexLock lock(mutex_);
    connections_.push_back(connection);
    requests_.push_back(std::move(request));
    add("attach");
  }
  void release(delivery::Connection&, std::uint64_t lease) override {
    MutexLock lock(mutex_);
    add("release " + std::to_string(lease));
  }
  void seek(delivery::Connection&, const delivery::SeekRequest& request) override {
    MutexLock lock(mutex_);
    add("seek at " + std::to_string(request.turn) +
        (request.skip == 0 ? " to epoch " + std::to_string(request.epoch)
                           : " skip " + std::to_string(request.skip)) +
        " #" + std::to_string(request.serial));
  }
  void handed(delivery::Connection&, const delivery::HandedNotice& notice) override {
    MutexLock lock(mutex_);
    add("handed " + std::to_string(notice.turn));
  }
  void apply(delivery::Connection&, const delivery::ApplyWish& wish) override {
    MutexLock lock(mutex_);
    std::string event = "apply #" + std::to_string(wish.serial);
    for (const auto& [name, value] : wish.vars) event += " " + name + "=" + value;
    add(std::move(event));
  }
  void query(delivery::Connection&, const delivery::QueryRequest& request) override {
    MutexLock lock(mutex_);
    asked_ = true;
    changed_.notify_all();
    while (held_) changed_.wait(mutex_);
    add("query #" + std::to_string(request.serial));
  }
  void waited(delivery::Connection&, const delivery::WaitedNotice& notice) override {
    MutexLock lock(mutex_);
    add("waited " + std::to_string(notice.waited.count()) + " ms in " +
        std::to_string(notice.waits));
  }
  void detach(delivery::Connection&) override {
    MutexLock lock(mutex_);
    add("detach");
  }
  void closed(delivery::Connection&, delivery::CloseCause cause) override {
    MutexLock lock(mutex_);
    add("closed: " + cause_text(cause));
  }
  void exited(delivery::Connection&) override {
    MutexLock lock(mutex_);
    add("exited");
  }

  // From hold() to go_on() the next query keeps the dispatcher from all else.
  void hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void await_query() {
    MutexLock lock(mutex_);
    while (!asked_) changed_.wait(mutex_);
  }
  void go_on() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }

  // Waits until so many events are there; the events so far.
  std::vector<std::string> events(std::size_t count) {
    MutexLock lock(mutex_);
    while (events_.size() < count) changed_.wait(mutex_);
    return events_;
  }
  delivery::ConnectionPtr connection(std::size_t index = 0) {
    MutexLock lock(mutex_);
    while (connections_.size() <= index) changed_.wait(mutex_);
    return connections_[index];
  }
  delivery::AttachRequest request(std::size_t index = 0) {
    MutexLock lock(mutex_);
    while (requests_.size() <= index) changed_.wait(mutex_);
    return requests_[index];
  }
  // As if all of them had been answered.
  void forget_requests() {
    MutexLock lock(mutex_);
    requests_.clear();
  }

 private:
  static std::string cause_text(delivery::CloseCause cause) {
    switch (cause) {
      case delivery::CloseCause::kExit: return "exit";
      case delivery::CloseCause::kHangUp: return "hang-up";
      case delivery::CloseCause::kProtocol: return "protocol error";
      case delivery::CloseCause::kOverflow: return "overflow";
      case delivery::CloseCause::kServer: return "server";
    }
    return "unknown";
  }
  void add(std::string event) SPDLD_REQUIRES(mutex_) {
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  bool held_ SPDLD_GUARDED_BY(mutex_) = false;
  bool asked_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::string> events_ SPDLD_GUARDED_BY(mutex_);
  std::vector<delivery::ConnectionPtr> connections_ SPDLD_GUARDED_BY(mutex_);
  std::vector<delivery::AttachRequest> requests_ SPDLD_GUARDED_BY(mutex_);
};

// Decides who lives: every consumer's process ends when the test says so.
class FakeLiveness final : public delivery::Liveness {
 public:
  explicit FakeLiveness(bool can_tell = true) : can_tell_(can_tell) {}

  Result<UniqueFd> watch(int, pid_t) override {
    if (!can_tell_) return UniqueFd();
    UniqueFd witness(::eventfd(0, EFD_CLOEXEC));
    MutexLock lock(mutex_);
    witnesses_.emplace_back(::dup(witness.get()));
    return witness;
  }
  void end_process(std::size_t index = 0) {
    MutexLock lock(mutex_);
    const std::uint64_t one = 1;
    (void)!::write(witnesses_.at(index).get(), &one, sizeof one);
  }

 private:
  const bool can_tell_;
  Mutex mutex_;
  std::vector<UniqueFd> witnesses_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::test
