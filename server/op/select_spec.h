// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spdld {

// Which of a source's items a pipeline has, as plain values: spec/ fills them from YAML, source/
// acts on them. The steps act one after the other, as they stand here; the items that are left keep
// their order.
struct SelectSpec {
  // A part of the items by a hash of their uris, so that an item stays in its part whatever comes
  // or goes beside it, and items with the same uri share one. Pipelines with the same shares and
  // different parts have no item in common, and together all of them.
  struct Split {
    enum class Part { kTrain, kVal, kTest };
    Part part = Part::kTrain;
    // Hashes are spread over [0, 1): val has [0, val), test has [val, val + test), train the rest.
    // So an item of val stays there when val grows. Neither is negative, and the sum is at most 1.
    double val = 0;
    double test = 0;

    friend bool operator==(const Split&, const Split&) = default;
  };

  std::string where = {};  // a condition, see source/select/where.h; empty: all items
  std::optional<Split> split = {};
  std::uint64_t skip = 0;                  // so many at the front are left out
  std::optional<std::uint64_t> take = {};  // at most so many

  friend bool operator==(const SelectSpec&, const SelectSpec&) = default;
};

}  // namespace spdld
