// SPDX-License-Identifier: Apache-2.0
#include "media/record/json_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/text/printable.h"
#include "base/text/utf8.h"
#include "base/text_place.h"
#include "media/bytes/byte_order.h"
#include "op/json_values.h"

namespace spdld::media {
namespace {

// What a document's numbers take of memory, at most, for each of its bytes: "1," becomes an int64
// and a float64 in vectors that grow by doubling.
constexpr std::uint64_t kMostGrowth = 16;

std::vector<std::vector<std::string>> pointers_of(const JsonTask& task) {
  std::vector<std::vector<std::string>> pointers;
  for (const JsonTask::Found& found : task.found) pointers.push_back(found.tokens);
  return pointers;
}

std::string place_text(std::string_view text, std::size_t offset) {
  const Place place = place_in(text, offset, 1);
  return "line " + std::to_string(place.line) + ", column " + std::to_string(place.column);
}

class JsonWorker final : public FieldWorker {
 public:
  explicit JsonWorker(const JsonTask& task)
      : task_(task), values_(pointers_of(task), JsonValues::Lists::kNested) {}

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override {
    const std::span<const std::byte> part = sample.part(task_.request);
    const std::string_view text = text_of(part);
    if (text.size() > task_.max_bytes)
      return fail("has " + std::to_string(text.size()) + " bytes, and decode_json.max_bytes is " +
                      std::to_string(task_.max_bytes) + ": raise it",
                  Code::kResourceExhausted);
    const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(part.size())};
    std::uint64_t taken = text.size() * kMostGrowth;
    if (!out.empty()) taken += out.front().resize_bytes(shape);
    if (taken > room_bytes) return taken;
    if (const std::size_t bad = find_bad_text(text); bad != text.npos)
      return fail("is no text at " + place_text(text, bad) + ": " + bad_text(text, bad));
    if (const Status read = values_.read(text); !read.ok()) return fail(read.message());
    for (std::size_t i = 0; i < task_.found.size(); ++i) SPDLD_TRY(set(i, text, sample));
    if (out.empty()) return 0;
    SPDLD_ASSIGN(std::byte* const to, out.front().resize(shape));
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    return 0;
  }

  std::uint64_t kept_bytes() const override { return values_.kept_bytes(); }
  bool lends_values() const override { return !task_.found.empty(); }

 private:
  tl::unexpected<Status> fail(const std::string& what, Code code = Code::kDataLoss) const {
    return error(code, "its field '" + task_.name + "' " + what);
  }

  Status set(std::size_t i, std::string_view text, SampleInput& sample) const {
    const JsonTask::Found& found = task_.found[i];
    const std::optional<Value> value = values_.value(i, found.type);
    if (value) {
      sample.set_value(found.value, *value);
      return {};
    }
    const std::string at = "at '" + printable(found.pointer) + "' ";
    const std::optional<Value> other = values_.value(i);
    if (!other) return fail("has nothing " + at + "for the field '" + found.field + "'").value();
    return fail(at + "(" + place_text(text, values_.offset(i)) + ") is " +
                std::string(value_type_name(type_of(*other))) + ", and the field '" + found.field +
                "' is declared " + std::string(value_type_name(found.type)))
        .value();
  }

  const JsonTask& task_;
  JsonValues values_;
};

}  // namespace

std::unique_ptr<FieldWorker> JsonTask::make_worker() const {
  return std::make_unique<JsonWorker>(*this);
}

Result<std::unique_ptr<FieldTask>> JsonChain::finish(const std::string&) {
  return std::move(task_);
}

}  // namespace spdld::media
