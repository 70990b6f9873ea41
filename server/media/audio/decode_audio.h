// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::media {

OpInfo decode_audio_op();

}  // namespace spdld::media
