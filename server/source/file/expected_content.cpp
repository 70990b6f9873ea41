// SPDX-License-Identifier: Apache-2.0
#include "source/file/expected_content.h"

#include <cstddef>
#include <span>
#include <string>

#include "source/file/disk.h"
#include "source/file/range_errors.h"
#include "source/item/indexed_files.h"

namespace spdld::source {
namespace {

std::string other_content(const std::string& message) {
  return " has changed since it was indexed: its size and time are the same, but " + message;
}

// A part that remembers that it could not be read.
class WatchedPart final : public FileBytes {
 public:
  explicit WatchedPart(PartBytes& part) : part_(part) {}

  const std::string& path() const override { return part_.path(); }
  std::uint64_t size() const override { return part_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    Result<std::size_t> read = part_.read(offset, out);
    if (!read && failed_.ok()) failed_ = read.error();
    return read;
  }
  const Status& failed() const { return failed_; }

 private:
  PartBytes& part_;
  Status failed_;
};

}  // namespace

Likeness likeness(const ExpectedContent& expected, const ItemStamp& now, std::string& how) {
  if (is_as_indexed(now, expected.stamp)) return Likeness::kSame;
  if (now.size_bytes != expected.stamp.size_bytes || now.mtime_ns != expected.stamp.mtime_ns) {
    how = changed_text(expected.stamp, now);
    return Likeness::kOther;
  }
  const std::optional<Status> known = expected.files->known(expected.number, now);
  if (!known) return Likeness::kUnknown;
  if (known->ok()) return Likeness::kSame;
  how = other_content(known->message());
  return Likeness::kOther;
}

Status compare_content(const ExpectedContent& expected, PartBytes& part, std::int64_t clock_ns) {
  const std::optional<ItemStamp> before = part.stamp();
  if (!before) return {Code::kUnavailable, "cannot look at " + part.path()};
  WatchedPart watched(part);
  const Status compared = expected.files->compare(expected.number, watched);
  if (!watched.failed().ok()) return watched.failed();
  if (part.stamp() != before)
    return {Code::kUnavailable, part.path() + " changed while it was compared with its index"};
  if (!compared.ok() && compared.code() != Code::kDataLoss) return compared;
  if (is_settled(*before, clock_ns)) expected.files->remember(expected.number, *before, compared);
  return compared.ok() ? compared : Status(Code::kDataLoss, other_content(compared.message()));
}

}  // namespace spdld::source
