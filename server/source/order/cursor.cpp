// SPDX-License-Identifier: Apache-2.0
#include "source/order/cursor.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/text/counted.h"

namespace spdld::source {
namespace {

constexpr std::string_view kPrefix = "spdld1";
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

std::string shuffle_text(const Shuffle& shuffle) {
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

// Decimal without sign or leading zeros, so that a cursor has one text only.
bool parse_number(std::string_view text, std::uint64_t& value) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size();
}

bool is_digest(std::string_view text) {
  return text.size() == kDigestSize && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string Order::digest() const {
  return listing_half(listing_digest, items) + shuffle_half(*this);
}

Cursor Cursor::at(const Order& order, std::uint64_t epoch, std::uint64_t position,
                  std::uint64_t step) {
  return {.order = order.digest(),
          .items = order.items,
          .seed = order.seed,
          .epoch = epoch,
          .position = position,
          .step = step};
}

std::string Cursor::text() const {
  std::string text(kPrefix);
  text += ':' + order;
  for (const std::uint64_t number : {items, seed, epoch, position, step}) {
    text += ':' + std::to_string(number);
  }
  return text;
}

Result<Cursor> Cursor::parse(std::string_view text) {
  constexpr std::size_t kParts = 7;
  constexpr std::size_t kShown = 200;
  const auto refuse = [text](const std::string& why) {
    return error(Code::kInvalidArgument,
                 "'" + std::string(text.substr(0, kShown)) + "' is no cursor: " + why +
                     "; give the text of a saved one, spdld1:ORDER:ITEMS:SEED:EPOCH:POSITION:STEP");
  };
  std::array<std::string_view, kParts> parts;
  std::size_t count = 0;
  for (std::string_view rest = text;; ++count) {
    if (count == kParts) return refuse("it has more than 7 parts");
    const std::size_t colon = rest.find(':');
    parts[count] = rest.substr(0, colon);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (parts[0] != kPrefix) return refuse("it does not begin with 'spdld1:'");
  if (count + 1 != kParts) return refuse("it has fewer than 7 parts");
  if (!is_digest(parts[1])) return refuse("its order is not 32 lower-case hex digits");

  Cursor cursor;
  cursor.order = parts[1];
  const std::array<std::pair<const char*, std::uint64_t*>, 5> numbers{{
      {"items", &cursor.items},
      {"seed", &cursor.seed},
      {"epoch", &cursor.epoch},
      {"position", &cursor.position},
      {"step", &cursor.step},
  }};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!parse_number(parts[i + 2], *numbers[i].second)) {
      return refuse("its " + std::string(numbers[i].first) + " is no number of 64 bits");
    }
  }
  if (cursor.position > cursor.items) return refuse("its position lies behind its last item");
  return cursor;
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
  if (cursor.seed != current.seed) {
    add("the seed was " + std::to_string(cursor.seed) + ", now it is " +
        std::to_string(current.seed));
  }
  if (!changed.empty()) {
    return Status(Code::kFailedPrecondition,
                  "the position was saved in another order of the items: " + changed +
                      "; restore what changed, or begin anew, without the saved position");
  }
  if (cursor.position > current.items) {
    return Status(Code::kInvalidArgument, "position " + std::to_string(cursor.position) +
                                              " lies behind the last of " +
                                              counted(current.items, "item") +
                                              ": go on from a state of this dataset, or begin "
                                              "afresh");
  }
  return {};
}

}  // namespace spdld::source
