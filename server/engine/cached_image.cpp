// SPDX-License-Identifier: Apache-2.0
#include "engine/cached_image.h"

#include <cstddef>

#include "base/memory/no_memory.h"

namespace spdld::engine {
namespace {

using Form = spec::CacheSpec::Form;

}  // namespace

CachedImageWorker::CachedImageWorker(const ImageTask& task, RowFetch& fetch,
                                     std::uint64_t most_bytes)
    : task_(task),
      fetch_(fetch),
      cache_(*fetch.image_cache()),
      most_bytes_(most_bytes),
      image_(task) {}

Result<std::uint64_t> CachedImageWorker::run(SampleInput& sample, std::span<RowOutput> out,
                                             std::uint64_t room_bytes) {
  const Row& row = static_cast<const RowSample&>(sample).row();
  const auto begun = fetch_.clock().now();
  const bool is_kept = fetch_.cached(row.bytes) != nullptr;
  was_whole_ = false;
  auto wants = is_kept ? make_from_kept(row, sample, out, room_bytes)
                       : make_and_keep(row, sample, out, room_bytes);
  if (!is_kept && wants && *wants > most_bytes_) {
    // The whole image may take more than the part of it that the row is made of.
    cache_.refuse(fetch_.cache_key(row.item));
    was_whole_ = false;
    wants = image_.run(sample, out, room_bytes);
  }
  if (wants && *wants > 0) return wants;
  const auto took = fetch_.clock().now() - begun;
  if (is_kept)
    fetch_.count_hit(took);
  else
    cache_.count_miss(took, was_whole_);
  return wants;
}

Result<std::uint64_t> CachedImageWorker::make_from_kept(const Row& row, SampleInput& sample,
                                                        std::span<RowOutput> out,
                                                        std::uint64_t room_bytes) {
  const CachedItem& kept = *fetch_.cached(row.bytes);
  if (kept.size == Size{}) return image_.run(sample, out, room_bytes);
  const std::span<const std::byte> bytes = fetch_.cached_bytes(row.bytes);
  if (cache_.form() == Form::kCoefficients) {
    auto wants = image_.run_recoded({kept.size, bytes}, sample, out, room_bytes);
    if (!wants && wants.error().code() == Code::kDataLoss)
      cache_.forget_lost(fetch_.cache_key(row.item), kept, wants.error());
    return wants;
  }
  const auto* const pixels = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return image_.run(task_.packed(pixels, kept.size), sample, out, room_bytes);
}

Result<std::uint64_t> CachedImageWorker::make_and_keep(const Row& row, SampleInput& sample,
                                                       std::span<RowOutput> out,
                                                       std::uint64_t room_bytes) {
  const std::span<const std::byte> bytes = sample.part(task_.request);
  const source::Revision& revision = row.bytes.parts.revision;
  const std::uint64_t key = fetch_.cache_key(row.item);
  const std::uint64_t free_bytes = revision.stamp ? cache_.room_for(key) : 0;
  if (free_bytes == 0) return image_.run(bytes, sample, out, room_bytes);
  const NewImage image{
      .bytes = bytes, .key = key, .stamp = *revision.stamp, .free_bytes = free_bytes};
  return cache_.form() == Form::kCoefficients ? keep_coefficients(image, sample, out, room_bytes)
                                              : keep_pixels(image, sample, out, room_bytes);
}

Result<std::uint64_t> CachedImageWorker::keep_pixels(const NewImage& image, SampleInput& sample,
                                                     std::span<RowOutput> out,
                                                     std::uint64_t room_bytes) {
  std::uint64_t needs_bytes = 0;
  const auto whole = sample.decode(
      [&] { return image_.decode(image.bytes, image.free_bytes, room_bytes, needs_bytes); });
  if (!whole) {
    // Corrupt, if only where this crop does not look: made without the cache, it is the same.
    if (whole.error().code() != kNoMemory) cache_.refuse(image.key);
    return image_.run(image.bytes, sample, out, room_bytes);
  }
  if (needs_bytes > 0) return needs_bytes;
  if (whole->data == nullptr) return image_.run(image.bytes, sample, out, room_bytes);
  was_whole_ = true;
  auto wants = image_.run(*whole, sample, out, room_bytes);
  if (wants && *wants > 0) return wants;
  cache_.keep(
      image.key, image.stamp, {whole->width, whole->height},
      {reinterpret_cast<const std::byte*>(whole->data),
       static_cast<std::size_t>(whole->stride_bytes) * static_cast<std::size_t>(whole->height)});
  return wants;
}

Result<std::uint64_t> CachedImageWorker::keep_coefficients(const NewImage& image,
                                                           SampleInput& sample,
                                                           std::span<RowOutput> out,
                                                           std::uint64_t room_bytes) {
  // Coefficients take more than the file: those of this one would be dropped.
  if (image.bytes.size() > image.free_bytes)
    return image_.run(image.bytes, sample, out, room_bytes);
  std::uint64_t needs_bytes = 0;
  const auto recoded =
      sample.decode([&] { return image_.recode(image.bytes, room_bytes, needs_bytes); });
  if (!recoded) return tl::unexpected<Status>(recoded.error());
  if (needs_bytes > 0) return needs_bytes;
  if (recoded->bytes.empty()) {
    auto wants = image_.run(image.bytes, sample, out, room_bytes);
    if (wants && *wants == 0) cache_.keep(image.key, image.stamp, {}, image.bytes);
    return wants;
  }
  was_whole_ = true;
  auto wants = image_.run_recoded(*recoded, sample, out, room_bytes);
  if (!wants || *wants > 0) return wants;
  if (recoded->bytes.size() > image.free_bytes) {
    cache_.refuse(image.key);  // else it is recoded in vain in each epoch
  } else {
    cache_.keep(image.key, image.stamp, recoded->size, recoded->bytes);
  }
  return wants;
}

}  // namespace spdld::engine
