// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "source/item/source.h"

namespace spdld::testing {

// Makes all of `bytes` the item's one part.
inline void set_only_part(source::ItemBytes& item) {
  item.begin();
  item.add_range();
  item.add_place({});
  item.end_range(item.bytes.size());
}

// A dataset in memory. Items may be told to fail, or to keep their readers waiting until answer().
class FakeSource : public source::Source {
 public:
  explicit FakeSource(std::vector<std::string> items) : items_(std::move(items)) {}
  ~FakeSource() override {
    if (on_destroyed) on_destroyed();
  }

  static std::vector<std::string> numbered(std::size_t count) {
    std::vector<std::string> items;
    for (std::size_t i = 0; i < count; ++i) items.push_back("item-" + std::to_string(i));
    return items;
  }

  void fail(std::uint64_t item, Status status) { failures_[item] = std::move(status); }
  void hold(std::uint64_t item) { held_[item] = true; }

  // Lets the readers who wait go on; returns how many there were.
  std::size_t answer() {
    std::vector<Waiting> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(waiting_);
    }
    for (const Waiting& reader : waiting)
      reader.sink->fetched(reader.token, give(reader.item, *reader.out));
    return waiting.size();
  }
  void wait_for_readers(std::size_t count) {
    MutexLock lock(mutex_);
    while (waiting_.size() < count) changed_.wait(mutex_);
  }

  std::uint64_t size() const override { return items_.size(); }
  const std::string& listing_digest() const override { return digest_; }
  const std::vector<source::SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string uri(std::uint64_t item) const override { return "fake/" + std::to_string(item); }
  Value value(std::uint64_t item, std::size_t) const override {
    return static_cast<std::int64_t>(item * 10);
  }

  Result<source::FetchState> fetch(std::uint64_t item, std::span<const source::PartRequest>,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    if (held_.contains(item)) {
      MutexLock lock(mutex_);
      waiting_.push_back({item, &out, &sink, token});
      changed_.notify_all();
      return source::FetchState::kPending;
    }
    if (Status status = give(item, out); !status.ok()) return tl::unexpected<Status>(status);
    return source::FetchState::kReady;
  }

  std::function<void()> on_destroyed;
  // Before an item's bytes are brought, or its failure told.
  std::function<void(std::uint64_t item, source::FetchedItem& out)> on_given;

 private:
  struct Waiting {
    std::uint64_t item;
    source::FetchedItem* out;
    source::FetchSink* sink;
    std::uint64_t token;
  };

  Status give(std::uint64_t item, source::FetchedItem& out) const {
    if (on_given) on_given(item, out);
    if (const auto failure = failures_.find(item); failure != failures_.end())
      return failure->second;
    const auto bytes = std::as_bytes(std::span(items_[item]));  // of an empty item: none
    std::copy(bytes.begin(), bytes.end(), out.bytes.resize(bytes.size()));
    set_only_part(out);
    return {};
  }

  const std::vector<std::string> items_;
  const std::string digest_ = "0123456789abcdef";
  const std::vector<source::SourceField> fields_{
      {.name = "image"}, {.name = "label", .kind = source::SourceField::Kind::kValue}};
  const std::vector<std::string> classes_{"only"};
  std::map<std::uint64_t, Status> failures_;
  std::map<std::uint64_t, bool> held_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Waiting> waiting_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::testing
