// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "transform/sound/spectrum_plan.h"

namespace spdld::transform {

// The kernels on spectra. None of them fuses a multiplication with an addition, and each sum has
// one order, so that the values are the same for every instruction set.

// How many frames transform_frames() does at once on this machine; at most kMaxFrames.
std::size_t frame_lanes();

// Floats that transform_frames() needs as scratch.
std::size_t frame_scratch(const FourierPlan& plan);

// Writes the spectra of frames that begin at samples[0], samples[hop], ...: frame f of row r goes
// to out[r * row_stride + f]. 1 <= frames <= frame_lanes(). Returns whether all samples were finite
// numbers; where they were not the spectra are of no use. `largest` becomes the maximum of what it
// was and of all values.
bool transform_frames(const SpectrumPlan& plan, const float* samples, std::size_t hop,
                      std::size_t frames, float* scratch, float* out, std::size_t row_stride,
                      float& largest);

// Returns the largest value after the change; `largest` if there is none.
float log_values(const LogScale& scale, float* values, std::size_t count, float largest);

// value = (max(value, floor) + add) * factor
void floor_values(float* values, std::size_t count, float floor, float add, float factor);

// out[k][i] = sum over m of matrix[k][m] * in[m][i], for `count` columns.
void multiply_rows(const float* matrix, std::size_t rows, std::size_t inner, const float* in,
                   float* out, std::size_t count);

}  // namespace spdld::transform
