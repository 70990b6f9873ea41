// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "op/order_spec.h"
#include "op/tensor_spec.h"

namespace spdld::engine {

// How a pipeline would be run, in plain values for programs. explain.h makes them of a plan.
struct PlanFacts {
  // What one task does to a field.
  struct FieldStages {
    std::string field;
    std::string stages;  // "decode_image + resize"
  };
  // Stages that are run as one.
  struct Task {
    enum class Pool { kIo, kCpu };
    std::string stages;  // "decode_image + random_resized_crop"
    Pool pool = Pool::kCpu;
    std::uint32_t concurrency = 0;         // rows at once
    std::uint32_t effective = 0;           // of these: for which there are threads
    std::vector<FieldStages> fields = {};  // that are decoded in it, one after the other
  };
  // Where images are decoded.
  struct Image {
    Layout layout = Layout::kNCHW;
    bool normalized = false;
    std::uint32_t resamples = 0;  // passes over the pixels that make others of them
  };
  // Of batches whose rows are filled up to the longest, by the lengths that the order goes by: what
  // is padding, 0 to 1.
  struct Padding {
    double without = 0;  // in the same order without lengths
    double with = 0;
  };
  // By a model, from a look at some items.
  struct Cache {
    std::string form;   // spec::kCacheForms
    std::string where;  // "ram", "disk"
    std::uint64_t limit_bytes = 0;
    std::uint64_t probed_items = 0;  // looked at; 0: all else is not known
    std::uint64_t item_bytes = 0;
    std::uint64_t held_items = 0;  // that fit
    // CPU time of one item: what a hit spares, what it takes instead, what the mean item saves.
    double spared_us = 0;
    double hit_us = 0;
    double saved_us = 0;
    std::optional<double> payback_epochs = std::nullopt;  // none: filling it never comes back
    bool used = true;
    std::string why_not;  // when it is not used
    // Another form that would save more, and how much; empty: none.
    std::string better_form = {};
    double better_saved_us = 0;
  };

  // What `delivery: {device: cuda}` puts on the GPU of each consumer.
  struct OnGpu {
    std::uint32_t slots = 0;               // of a consumer: credits, and one that is being copied
    std::uint64_t slot_bytes = 0;          // 0: no field is large enough
    std::uint64_t host_bytes = 0;          // of a slot in main memory beside it
    std::vector<std::string> fields = {};  // whose values lie there
    std::uint64_t budget_bytes = 0;        // of the daemon's arenas on each GPU
    bool or_host = false;                  // where it cannot be, in main memory
    std::string why_none = {};             // the daemon can deliver to no GPU; empty: it can

    static constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;  // in which GPUs share memory

    std::uint64_t bytes() const { return (slots * slot_bytes + kUnit - 1) / kUnit * kUnit; }
    bool fits() const { return bytes() <= budget_bytes; }
  };

  std::string pipeline;
  std::uint64_t items = 0;
  std::uint64_t classes = 0;
  Shuffle shuffle;
  std::vector<Task> tasks;  // of each row, one after the other
  std::optional<Image> image = std::nullopt;
  std::uint64_t batch_rows = 0;
  std::uint64_t slot_bytes = 0;
  std::vector<TensorSpec> tensors;
  std::uint64_t max_bytes = 0;  // of the rows of a tensor of bytes together
  std::uint32_t num_shards = 1;
  std::uint64_t steps_per_epoch = 0;
  std::uint32_t credits = 0;
  std::uint32_t slots = 0;  // of a consumer: credits, and those that are being filled
  std::string arena_kind;
  std::uint64_t arena_bytes = 0;   // of a consumer
  std::uint64_t needed_bytes = 0;  // of all consumers' arenas
  std::uint64_t used_bytes = 0;    // of the budget, now
  std::uint64_t budget_bytes = 0;
  std::uint64_t missing_bytes = 0;  // 0: it fits
  std::optional<Cache> cache = std::nullopt;
  std::optional<Padding> padding = std::nullopt;
  std::optional<OnGpu> on_gpu = std::nullopt;
  std::vector<std::string> warnings;  // what is allowed, but hardly meant
};

}  // namespace spdld::engine
