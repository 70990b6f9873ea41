// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace spdld::transform {

// The kernels on samples. As those on spectra they make the same values on every instruction set.

// Standard normal numbers out of uniform 64 bits: `count` words make twice as many numbers, of
// which those of the first halves come first.
void normal_numbers(const std::uint64_t* words, std::size_t count, float* out);

// out[i * out_stride] for i in [0, count): the sum of samples[i * step + t] * taps[t] over t in
// [0, tap_count), tap_count a multiple of 4.
void filter_samples(const float* samples, std::size_t step, const float* taps,
                    std::size_t tap_count, float* out, std::size_t out_stride, std::size_t count);

}  // namespace spdld::transform
