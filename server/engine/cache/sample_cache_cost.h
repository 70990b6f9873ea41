// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "op/image.h"
#include "source/item/source.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

// What one item would cost and take, looked at before anything runs.
struct ItemProbe {
  std::uint64_t encoded_bytes = 0;
  std::optional<source::ItemStamp> stamp;
  Size size;    // of the image; empty: there is none
  Rect region;  // that one draw of the pipeline's crops decodes
  bool jpeg = true;
  bool is_indexed = false;  // from the second epoch on it is decoded by a seek index
  bool can_be_recoded = false;
  std::uint64_t recoded_bytes = 0;  // what ImageDecoder::recode() makes of it, if it can be
  bool waited = false;              // the storage was slower than the page cache is
};

// What a cache would do for a pipeline, by the model below. Times are CPU time of one item.
struct CacheEstimate {
  std::uint64_t items = 0;   // of the source
  std::uint64_t probed = 0;  // looked at; 0: nothing is known, and the cache is used
  double item_bytes = 0;     // that one item takes in the cache
  std::uint64_t held = 0;    // items that fit
  double first_ns = 0;       // without the cache, in the first epoch
  double without_ns = 0;     // what a hit spares ...
  double hit_ns = 0;         // ... and what it takes instead
  double fill_ns = 0;        // what keeping one item takes, once
  double miss_ns = 0;        // what looking in vain takes
  bool used = true;
  std::string why_not;  // when it is not used
  // Another form that would save more CPU time at the same size, and how much.
  std::optional<spec::CacheSpec::Form> better_form;
  double better_saved_ns = 0;

  double held_share() const;
  // CPU time that the dataset's mean item saves in a warm epoch; less than 0: it costs.
  double saved_ns() const;
  // (without - hit) / (first + fill - hit): by how much a row without the cache takes longer than a
  // hit, of how much one that fills it does.
  double saved_share() const;
  // Epochs after which what filling took has come back.
  double payback_epochs() const;
};

// Up to so many items, evenly spread over the source, as this plan would treat them. Blocks until
// they are there, but not for long: what has not come by then, or cannot be read, is left out.
// `has_seek_indexes`: the daemon keeps those of JPEG files.
std::vector<ItemProbe> probe_items(const Plan& plan, source::Source& source, bool has_seek_indexes);

// Decides whether the cache is used. `cache_device`: where a cache on disk lies, if that is known.
CacheEstimate estimate_cache(const spec::CacheSpec& cache, int pixel_bytes, std::uint64_t items,
                             const std::vector<ItemProbe>& probes,
                             std::optional<std::uint64_t> cache_device);

// One paragraph for people: "decoded, ram, 8.0 GiB: ...".
std::string cache_text(const spec::CacheSpec& cache, const CacheEstimate& estimate);

}  // namespace spdld::engine
