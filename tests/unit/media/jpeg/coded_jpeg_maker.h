// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/rng.h"
#include "media/jpeg_scan/baseline_frame.h"

namespace spdld::media::test {

// Codes as no encoder would choose them: of up to 16 bits for whichever symbols.
HuffmanCodes drawn_codes(KeyedRng& rng, bool is_ac);

// A sound baseline file of drawn size, sampling, quantizers, codes and symbols: of coefficients and
// codes that pictures do not have.
std::vector<std::byte> drawn_jpeg(KeyedRng& rng, std::size_t least_height = 1);

}  // namespace spdld::media::test
