// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "source/item/source.h"

namespace spdld::source {

// How long each item is, by one of the numbers that the listing knows of it: what an order by
// length goes by. Four bytes an item; immutable, and shared by all that run one pipeline version.
class Lengths {
 public:
  // `field` names a value of the source: int64 or float64. kInvalidArgument says which numbers
  // there are if it is none of them, and names the first item whose length is negative or not
  // finite.
  // They count in `memory`, which is asked before: kResourceExhausted if it has no room.
  static Result<std::shared_ptr<const Lengths>> read(const Source& source, const std::string& field,
                                                     ListingMemory::SharePtr memory);
  // Each finite and not negative.
  explicit Lengths(std::vector<float> lengths, ListingMemory::SharePtr memory = nullptr);

  std::uint64_t size() const { return lengths_.size(); }
  // Rounded to a float: lengths that differ by less than a ten-millionth of themselves may be one.
  // item < size().
  float operator[](std::uint64_t item) const { return lengths_[item]; }
  // Of all lengths in the listing's order: 16 hex digits.
  const std::string& digest() const { return digest_; }
  // Where an order by them counts what it keeps for this user. Null: nowhere.
  ListingMemory::SharePtr share(uid_t user) const {
    return memory_ == nullptr ? nullptr : memory_->of(user);
  }

 private:
  ListingMemory::SharePtr memory_;
  std::vector<float> lengths_;
  std::string digest_;
};

}  // namespace spdld::source
