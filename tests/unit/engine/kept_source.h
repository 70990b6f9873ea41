// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "source/item/source.h"
#include "tests/support/fake_source.h"

namespace spdld::testing {

// A dataset in memory whose items can be told apart from what they were, and be changed. Counts how
// often bytes were brought.
class KeptSource final : public source::Source {
 public:
  using Bytes = std::vector<std::byte>;

  explicit KeptSource(std::vector<Bytes> items, std::string origin = "kept")
      : items_(std::move(items)), origin_(std::move(origin)), revisions_(items_.size(), 1) {}

  static std::vector<Bytes> texts(std::size_t count, std::size_t size_bytes = 100) {
    std::vector<Bytes> items;
    for (std::size_t i = 0; i < count; ++i)
      items.emplace_back(size_bytes, static_cast<std::byte>('a' + i % 26));
    return items;
  }

  void change(std::uint64_t item, Bytes bytes) {
    MutexLock lock(mutex_);
    items_[item] = std::move(bytes);
    ++revisions_[item];
  }
  void fail(std::uint64_t item, Status status) {
    MutexLock lock(mutex_);
    failures_[item] = std::move(status);
  }
  // As for files that were changed just now.
  void give_no_stamps() { stamped_ = false; }
  std::uint64_t brought() {
    MutexLock lock(mutex_);
    return brought_;
  }
  // Of memory that callers take of what was unchanged.
  std::uint64_t kept_bytes() {
    MutexLock lock(mutex_);
    return kept_bytes_;
  }

  std::uint64_t size() const override { return items_.size(); }
  const std::string& listing_digest() const override { return digest_; }
  const std::vector<source::SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string uri(std::uint64_t item) const override { return "kept/" + std::to_string(item); }
  Value value(std::uint64_t item, std::size_t) const override {
    return static_cast<std::int64_t>(item * 10);
  }
  std::string origin() const override { return origin_; }

  Result<source::FetchState> fetch(std::uint64_t item, std::span<const source::PartRequest>,
                                   source::FetchedItem& out, source::FetchSink&,
                                   std::uint64_t) override {
    MutexLock lock(mutex_);
    if (const auto failure = failures_.find(item); failure != failures_.end())
      return tl::unexpected<Status>(failure->second);
    const Bytes& bytes = items_[item];
    source::ItemStamp stamp;
    stamp.inode = item;
    stamp.size_bytes = bytes.size();
    stamp.mtime_ns = revisions_[item];
    source::Revision& revision = out.revision;
    revision.stamp.reset();
    revision.unchanged = revision.asked && revision.known == stamp;
    out.bytes.resize(0);
    set_only_part(out);
    if (revision.unchanged) kept_bytes_ += revision.kept_bytes;
    if (revision.unchanged) return source::FetchState::kReady;
    if (stamped_) revision.stamp = stamp;
    ++brought_;
    out.bytes.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(out.bytes.data(), bytes.data(), bytes.size());
    set_only_part(out);
    return source::FetchState::kReady;
  }

 private:
  const std::string digest_ = "0123456789abcdef";
  const std::vector<source::SourceField> fields_{
      {.name = "image"}, {.name = "label", .kind = source::SourceField::Kind::kValue}};
  const std::vector<std::string> classes_{"only"};
  Mutex mutex_;
  std::vector<Bytes> items_;  // their number never changes
  const std::string origin_;
  std::vector<std::int64_t> revisions_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Status> failures_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t brought_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t kept_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool stamped_ = true;
};

}  // namespace spdld::testing
