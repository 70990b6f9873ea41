// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo spectrogram_op();
OpInfo mel_spectrogram_op();
OpInfo amplitude_to_db_op();
OpInfo log_mel_op();
OpInfo mfcc_op();

}  // namespace spdld::transform
