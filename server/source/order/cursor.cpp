// SPDX-License-Identifier: Apache-2.0
#include "source/order/cursor.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdio>

#include "base/text/counted.h"

namespace spdld::source {
namespace {

constexpr std::size_t kDigestHalf = 16;
constexpr std::size_t kDigestSize = 2 * kDigestHalf;
constexpr std::size_t kLengthsAt = 8;  // of the shuffle's half, where the shuffle goes by lengths

bool is_by_length(const Shuffle& shuffle) {
  return shuffle.kind == Shuffle::Kind::kGlobal && shuffle.bucket;
}

std::string hex64(std::uint64_t value) {
  char text[kDigestHalf + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string kind_text(const Shuffle& shuffle) {
  switch (shuffle.kind) {
    case Shuffle::Kind::kNone: return "none";
    case Shuffle::Kind::kGlobal:
      if (!shuffle.bucket) return "global";
      return "{global: {bucket: {by: " + shuffle.bucket->by +
             ", window: " + std::to_string(shuffle.bucket->window) +
             ", run: " + std::to_string(shuffle.bucket->run) + "}}}";
    case Shuffle::Kind::kBlock:
      return "{block: " + std::to_string(shuffle.block) +
             ", interleave: " + std::to_string(shuffle.interleave) + "}";
  }
  return "none";
}

std::string shuffle_text(const Shuffle& shuffle) {
  const Repeat& repeat = shuffle.repeat;
  if (repeat.rows == 1) return kind_text(shuffle);
  return kind_text(shuffle) + " with repeat {rows: " + std::to_string(repeat.rows) +
         ", adjacent: " + (repeat.adjacent ? "true" : "false") + "}";
}

// The leading number says how positions become items: it grows when Sampler's answers change.
std::string shuffle_half(const Order& order) {
  const std::string text = "1 " + shuffle_text(order.shuffle);
  std::string half = hex64(XXH3_64bits(text.data(), text.size()));
  if (is_by_length(order.shuffle))
    half.replace(kLengthsAt, kDigestHalf,
                 hex64(XXH3_64bits(order.lengths_digest.data(), order.lengths_digest.size())), 0,
                 kDigestHalf - kLengthsAt);
  return half;
}

std::string listing_half(const std::string& listing_digest, std::uint64_t items) {
  const std::string text = listing_digest + " " + std::to_string(items);
  return hex64(XXH3_64bits(text.data(), text.size()));
}

}  // namespace

std::string Order::digest() const {
  return listing_half(listing_digest, items) + shuffle_half(*this);
}

Status check(const Cursor& cursor, const Order& current) {
  const std::string now = current.digest();
  std::string changed;
  const auto add = [&changed](const std::string& what) {
    changed += (changed.empty() ? "" : "; ") + what;
  };
  if (cursor.items != current.items) {
    add("the dataset had " + counted(cursor.items, "item") + ", now it has " +
        std::to_string(current.items));
  } else if (cursor.order.substr(0, kDigestHalf) != now.substr(0, kDigestHalf)) {
    add("the dataset still has " + counted(current.items, "item") +
        (current.items == 1 ? ", but its name is" : ", but their names are") + " not the same");
  }
  if (cursor.order.size() != kDigestSize ||
      cursor.order.substr(kDigestHalf) != now.substr(kDigestHalf)) {
    const bool same_shuffle =
        is_by_length(current.shuffle) && cursor.order.size() == kDigestSize &&
        cursor.order.substr(kDigestHalf, kLengthsAt) == now.substr(kDigestHalf, kLengthsAt);
    if (!same_shuffle)
      add("the shuffle was another one, now it is " + shuffle_text(current.shuffle));
    else if (changed.empty())  // else those of the other items
      add("the lengths '" + current.shuffle.bucket->by +
          "', by which the items are put in order, are not the same");
  }
  if (!changed.empty()) {
    return Status(Code::kFailedPrecondition,
                  "the position was saved in another order of the items: " + changed +
                      "; restore what changed, or begin anew, without the saved position");
  }
  const std::uint32_t each = current.shuffle.repeat.rows;
  if (cursor.position > current.items * each) {
    return Status(Code::kInvalidArgument,
                  "position " + std::to_string(cursor.position) + " lies behind the last of " +
                      counted(current.items * each, each > 1 ? "row" : "item") +
                      ": go on from a state of this dataset, or begin "
                      "afresh");
  }
  return {};
}

}  // namespace spdld::source
