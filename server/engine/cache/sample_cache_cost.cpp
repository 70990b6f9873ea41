// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "delivery/memory_probe.h"
#include "engine/cache/sample_cache.h"

namespace spdld::engine {
namespace {

using Form = spec::CacheSpec::Form;
using Where = spec::CacheSpec::Where;

// Nanoseconds of one core, as spdld_cache_bench (tests/bench) prints them on an AMD EPYC at about
// 3 GHz; a machine half as fast has them all doubled, which changes no decision.
constexpr double kEntropyPerByte = 6.2;  // of a JPEG: its Huffman codes, down to the last row
constexpr double kJpegPerPixel = 1.3;    // of the region: transform, upsampling, colour
// The same of a file that has a seek index, of the region's share of its bytes, ...
constexpr double kIndexedPerByte = 5.9;
constexpr double kIndexedPerPixel = 1.5;
// ... of coefficients, of the region's share of theirs, and what making these of a file takes.
constexpr double kRecodedPerByte = 0.96;
constexpr double kRecodedPerPixel = 1.26;
constexpr double kRecodePerByte = 14.5;
constexpr double kPngPerPixel = 23.0;    // of all columns, down to the last row
constexpr double kReadPerByte = 0.035;   // from the page cache
constexpr double kMemoryPerByte = 0.15;  // rows of kept pixels, which are in no cache of the core
constexpr double kDiskPerByte = 0.08;    // from the page cache, with its checksum
constexpr double kKeepPerByte = 0.42;    // copied into fresh pages
constexpr double kWritePerByte = 2.2;    // into a file that grows
constexpr double kMiss = 1500.0;         // the index, and one more look at the file's stamp

constexpr double kLongestPaybackEpochs = 20;
constexpr double kBetter = 1.1;  // times as much another form must save to be told of

double area(const Size& size) {
  return static_cast<double>(size.width) * static_cast<double>(size.height);
}

// Of the rows down to the end of `region`.
double share_above(const ItemProbe& item, const Rect& region) {
  if (item.size.height == 0) return 0;
  return static_cast<double>(region.y + region.height) / static_cast<double>(item.size.height);
}

double share_of(const ItemProbe& item, const Rect& region) {
  const double whole = area(item.size);
  return whole > 0 ? area(region.size()) / whole : 0;
}

// In the first epoch.
double first_decode_ns(const ItemProbe& item, const Rect& region) {
  const double above = share_above(item, region);
  if (!item.jpeg) return above * area(item.size) * kPngPerPixel;
  return above * static_cast<double>(item.encoded_bytes) * kEntropyPerByte +
         area(region.size()) * kJpegPerPixel;
}

// In all others.
double decode_ns(const ItemProbe& item, const Rect& region) {
  if (!item.is_indexed) return first_decode_ns(item, region);
  return share_of(item, region) * static_cast<double>(item.encoded_bytes) * kIndexedPerByte +
         area(region.size()) * kIndexedPerPixel;
}

// Sums over the probes, then means.
struct Costs {
  double bytes = 0;
  double first_ns = 0;
  double without_ns = 0;
  double hit_ns = 0;
  double fill_ns = 0;
};

Costs costs_of(const spec::CacheSpec& cache, double pixel_bytes, const ItemProbe& item) {
  const bool disk = cache.where == Where::kDisk;
  const double keep_per_byte = disk ? kWritePerByte : kKeepPerByte;
  const auto encoded = static_cast<double>(item.encoded_bytes);
  const double decode = decode_ns(item, item.region);
  const double first_decode = first_decode_ns(item, item.region);
  const double read = encoded * kReadPerByte;
  // A file is read whole, memory only where it is looked at.
  const auto read_back = [&](double bytes) { return disk ? bytes * kDiskPerByte : 0; };
  if (cache.form == Form::kEncoded) {
    return {.bytes = encoded,
            .first_ns = read,
            .without_ns = read,
            .hit_ns = read_back(encoded),
            .fill_ns = encoded * keep_per_byte};
  }
  if (cache.form == Form::kCoefficients && item.recoded_bytes == 0) {
    return {.bytes = encoded,
            .first_ns = read + first_decode,
            .without_ns = read + decode,
            .hit_ns = read_back(encoded) + decode,
            .fill_ns = encoded * keep_per_byte};
  }
  Costs costs{.first_ns = read + first_decode, .without_ns = read + decode};
  if (cache.form == Form::kCoefficients) {
    costs.bytes = static_cast<double>(item.recoded_bytes);
    const double pixels = share_of(item, item.region) * costs.bytes * kRecodedPerByte +
                          area(item.region.size()) * kRecodedPerPixel;
    costs.hit_ns = read_back(costs.bytes) + pixels;
    costs.fill_ns = encoded * kRecodePerByte + pixels;
  } else {
    costs.bytes = area(item.size) * pixel_bytes;
    costs.hit_ns =
        disk ? read_back(costs.bytes) : area(item.region.size()) * pixel_bytes * kMemoryPerByte;
    costs.fill_ns = first_decode_ns(item, {0, 0, item.size.width, item.size.height});
  }
  costs.fill_ns += costs.bytes * keep_per_byte - first_decode;
  return costs;
}

// Whether all items lie where the cache would.
bool same_device(const std::vector<ItemProbe>& probes, std::optional<std::uint64_t> device) {
  return std::all_of(probes.begin(), probes.end(), [&](const ItemProbe& item) {
    return device && item.stamp && item.stamp->device == *device;
  });
}

std::string why_not(const spec::CacheSpec& cache, const CacheEstimate& estimate,
                    const std::vector<ItemProbe>& probes, std::optional<std::uint64_t> device) {
  if (estimate.held == 0) return "an item takes more than its size: raise cache.size";
  const bool from_disk = cache.form == Form::kEncoded && cache.where == Where::kDisk;
  // What storage costs, a network's above all, the model does not know: the user does.
  const bool waited =
      std::any_of(probes.begin(), probes.end(), [](const ItemProbe& item) { return item.waited; });
  if (from_disk && !same_device(probes, device)) return "";
  if (cache.where == Where::kRam && cache.form != Form::kDecoded && waited) return "";
  if (cache.form == Form::kCoefficients && waited && !same_device(probes, device)) return "";
  if (from_disk)
    return "the items lie on the same device, and reading them back from a copy costs as much: "
           "leave 'cache' out, or keep them 'decoded', as 'coefficients' or in 'ram'";
  if (estimate.hit_ns >= estimate.without_ns)
    return "reading what was kept costs more than making it again: leave 'cache' out, or keep it "
           "in 'ram'";
  if (estimate.saved_ns() <= 0)
    return "it holds so little of the dataset that looking in vain costs more than the hits save: "
           "raise cache.size or leave 'cache' out";
  if (estimate.payback_epochs() > kLongestPaybackEpochs)
    return fmt::format("filling it would come back only after {:.0f} epochs: leave 'cache' out",
                       estimate.payback_epochs());
  return "";
}

std::string time_text(double ns) {
  return ns < 1e5 ? fmt::format("{:.1f} us", ns / 1e3) : fmt::format("{:.2f} ms", ns / 1e6);
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t end = text.size(); end > 3;) {
    end -= 3;
    text.insert(end, 1, ',');
  }
  return text;
}

}  // namespace

double CacheEstimate::held_share() const {
  return items == 0 ? 0 : static_cast<double>(held) / static_cast<double>(items);
}

double CacheEstimate::saved_ns() const {
  return held_share() * (without_ns - hit_ns) - (1 - held_share()) * miss_ns;
}

double CacheEstimate::saved_share() const {
  const double longer = first_ns + fill_ns - hit_ns;
  return longer <= 0 ? 1 : std::clamp((without_ns - hit_ns) / longer, 0.0, 1.0);
}

double CacheEstimate::payback_epochs() const {
  const double saved = saved_ns();
  return saved <= 0 ? INFINITY : held_share() * fill_ns / saved;
}

namespace {

CacheEstimate estimate_form(const spec::CacheSpec& cache, int pixel_bytes, std::uint64_t items,
                            const std::vector<ItemProbe>& probes,
                            std::optional<std::uint64_t> cache_device) {
  CacheEstimate estimate;
  estimate.items = items;
  estimate.probed = probes.size();
  if (probes.empty()) return estimate;
  for (const ItemProbe& item : probes) {
    const Costs costs = costs_of(cache, pixel_bytes, item);
    estimate.item_bytes += costs.bytes;
    estimate.first_ns += costs.first_ns;
    estimate.without_ns += costs.without_ns;
    estimate.hit_ns += costs.hit_ns;
    estimate.fill_ns += costs.fill_ns;
  }
  const auto count = static_cast<double>(probes.size());
  estimate.item_bytes = estimate.item_bytes / count + static_cast<double>(SampleCache::kEntryBytes);
  estimate.first_ns /= count;
  estimate.without_ns /= count;
  estimate.hit_ns /= count;
  estimate.fill_ns /= count;
  estimate.miss_ns = kMiss;
  estimate.held = std::min(items, static_cast<std::uint64_t>(static_cast<double>(cache.size_bytes) /
                                                             estimate.item_bytes));
  estimate.why_not = why_not(cache, estimate, probes, cache_device);
  estimate.used = estimate.why_not.empty();
  return estimate;
}

}  // namespace

CacheEstimate estimate_cache(const spec::CacheSpec& cache, int pixel_bytes, std::uint64_t items,
                             const std::vector<ItemProbe>& probes,
                             std::optional<std::uint64_t> cache_device) {
  CacheEstimate estimate = estimate_form(cache, pixel_bytes, items, probes, cache_device);
  const bool are_images =
      std::ranges::any_of(probes, [](const ItemProbe& item) { return item.size != Size{}; });
  if (!are_images) return estimate;
  const double saved = estimate.used ? std::max(estimate.saved_ns(), 0.0) : 0;
  for (const Form form : {Form::kDecoded, Form::kCoefficients}) {
    if (form == cache.form) continue;
    spec::CacheSpec other = cache;
    other.form = form;
    const CacheEstimate others = estimate_form(other, pixel_bytes, items, probes, cache_device);
    if (!others.used || others.saved_ns() <= std::max(kBetter * saved, estimate.better_saved_ns))
      continue;
    estimate.better_form = form;
    estimate.better_saved_ns = others.saved_ns();
  }
  return estimate;
}

std::string cache_text(const spec::CacheSpec& cache, const CacheEstimate& estimate) {
  std::string text = fmt::format("{}, {}, {}", name_of(cache.form), name_of(cache.where),
                                 delivery::format_bytes(cache.size_bytes));
  if (estimate.probed == 0)
    return text + ": used; no item could be looked at to say what it will hold";
  text += fmt::format(": about {} an item, holds {} of {} items ({:.1f} %)",
                      delivery::format_bytes(static_cast<std::uint64_t>(estimate.item_bytes)),
                      grouped(estimate.held), grouped(estimate.items), 100 * estimate.held_share());
  std::string better;
  if (estimate.better_form)
    better = fmt::format("\n         'form: {}' would save {} of CPU time an item at this size",
                         name_of(*estimate.better_form), time_text(estimate.better_saved_ns));
  if (!estimate.used) return text + "\n         NOT USED: " + estimate.why_not + better;
  text += fmt::format("\n         a hit takes {} in place of {}; a warm epoch saves {} an item",
                      time_text(estimate.hit_ns), time_text(estimate.without_ns),
                      time_text(estimate.saved_ns()));
  if (estimate.saved_ns() > 0)
    text += fmt::format(", filling it costs {:.1f} such epochs", estimate.payback_epochs());
  return text + better;
}

}  // namespace spdld::engine
