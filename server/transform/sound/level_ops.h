// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo mix_channels_op();
OpInfo gain_op();
OpInfo normalize_audio_op();

}  // namespace spdld::transform
