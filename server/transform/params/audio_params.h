// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory/no_memory.h"
#include "op/audio.h"
#include "op/params.h"

// What the tables and steps of several ops on sound share.
namespace spdld::transform {

inline ParamInfo sound_fields_param() {
  return {.name = "fields",
          .type = ParamType::kStringList,
          .doc =
              "The fields it works on, which share one draw; not given: all sound that is "
              "decoded by then.",
          .min_items = 1,
          .scalar_ok = true,
          .nullable = true};
}

// A number, or the ends of a range out of which one is drawn.
struct Interval {
  double low = 0;
  double high = 0;

  double draw(KeyedRng& rng) const { return low < high ? rng.uniform(low, high) : low; }
};

inline Result<Interval> interval_of(const Params& params, const std::string& op,
                                    const std::string& name) {
  const auto& values = params.get<std::vector<double>>(name);
  if (values.front() > values.back())
    return error(Code::kInvalidArgument, op + ": " + name +
                                             " must be one number, or [low, high] with low <= "
                                             "high; swap the two");
  return Interval{values.front(), values.back()};
}

// The op `op` needs samples.
inline Status need_samples(const AudioFormat& in, const std::string& op) {
  if (!in.is_spectrum()) return {};
  return {Code::kInvalidArgument,
          op + ": it works on samples, and a stage before it has made a spectrum of them; put '" +
              op + "' before that stage, or remove one of the two"};
}

// The op `op` needs samples at a rate that is the same for all items.
inline Status need_rate(const AudioFormat& in, const std::string& op) {
  SPDLD_TRY(need_samples(in, op));
  if (in.sample_rate > 0) return {};
  return {Code::kInvalidArgument, op + ": the sample rate differs from file to file: write "
                                       "'decode_audio: {sample_rate: 16000}'"};
}

inline Status not_finite(const std::string& op) {
  return {Code::kDataLoss, op + ": a sample is no finite number, but NaN or infinite"};
}

// Sound::renew(), or kNoMemory.
inline Status renew(Sound& sound, int channels, int bins, std::int64_t length) {
  try {
    sound.renew(channels, bins, length);
    return {};
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  sound = {};
  return no_memory("the samples of a sound");
}

}  // namespace spdld::transform
