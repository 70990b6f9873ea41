// SPDX-License-Identifier: Apache-2.0
#include "source/order/padding.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::source {
namespace {

// So many rows are looked at in all, and so many one after the other, which is about a window of an
// order by length.
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 20;
constexpr std::uint64_t kRowsOfGroup = 8192;

struct Sums {
  double rows = 0;    // of all rows
  double padded = 0;  // of all rows as long as the longest of their batch

  double share() const { return padded > 0 ? (padded - rows) / padded : 0; }
};

void add_batch(const Sampler& order, const Lengths& lengths, std::uint64_t first,
               std::uint64_t rows, Sums& sums) {
  double longest = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const double length = lengths[order.item(0, first + row)];
    longest = std::max(longest, length);
    sums.rows += length;
  }
  sums.padded += longest * static_cast<double>(rows);
}

}  // namespace

double padding_share(const Sampler& order, const Lengths& lengths, std::uint64_t batch) {
  SPDLD_CHECK(batch > 0 && lengths.size() == order.items());
  Sums sums;
  const std::uint64_t batches = order.rows() / batch;
  if (batches == 0) {
    add_batch(order, lengths, 0, order.rows(), sums);
    return sums.share();
  }
  const std::uint64_t most = std::max<std::uint64_t>(kMostRows / batch, 1);
  const std::uint64_t group = batches <= most ? batches : kRowsOfGroup / batch + 1;
  const std::uint64_t groups = batches <= most ? 1 : std::max<std::uint64_t>(most / group, 1);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const std::uint64_t first = g * (batches / groups);
    for (std::uint64_t i = first; i < std::min(first + group, batches); ++i)
      add_batch(order, lengths, i * batch, batch, sums);
  }
  return sums.share();
}

}  // namespace spdld::source
