// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spdld/arena.h"

namespace spdld::delivery {

// How a batch lies when its large fields are on a GPU: there the values of fields that
// wire::goes_to_device() names, all else in a slot in main memory, in the order that they had. The
// offsets and shapes of rows stay in main memory. Immutable.
class DeviceLayout {
 public:
  // Of the fields as a batch of at most `rows` has them that lies in main memory alone.
  DeviceLayout(std::span<const wire::FieldLayout> fields, std::uint64_t rows);

  // The same fields, where consumers find them.
  std::span<const wire::FieldLayout> fields() const { return fields_; }
  std::uint64_t host_bytes() const { return host_bytes_; }      // of a slot; never 0
  std::uint64_t device_bytes() const { return device_bytes_; }  // of a batch; 0: none goes there

  // What is copied of one batch: offsets from the first byte of where it lies.
  struct Part {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    std::uint64_t bytes = 0;

    friend bool operator==(const Part&, const Part&) = default;
  };
  struct Parts {
    std::vector<Part> device;
    std::vector<Part> host;
  };
  // Of the batch in `slot`, which is complete; what no row uses is left out.
  Parts parts(const std::byte* slot, std::uint64_t rows) const;

 private:
  std::vector<wire::FieldLayout> whole_;   // as they were given
  std::vector<wire::FieldLayout> fields_;  // as they lie
  std::uint64_t host_bytes_ = 0;
  std::uint64_t device_bytes_ = 0;
};

}  // namespace spdld::delivery
