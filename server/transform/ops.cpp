// SPDX-License-Identifier: Apache-2.0
#include "transform/ops.h"

#include "transform/image/box_ops.h"
#include "transform/image/crop_ops.h"
#include "transform/image/flip_ops.h"
#include "transform/image/pixel_ops.h"
#include "transform/image/resize_ops.h"
#include "transform/sound/level_ops.h"
#include "transform/sound/noise_op.h"
#include "transform/sound/pad_or_trim_op.h"
#include "transform/sound/spectrum_ops.h"
#include "transform/sound/speed_op.h"

namespace spdld::transform {

std::vector<OpInfo> ops() {
  return {bounding_boxes_op(),
          resize_op(),
          center_crop_op(),
          random_crop_op(),
          random_resized_crop_op(),
          random_horizontal_flip_op(),
          normalize_op(),
          to_dtype_op(),
          mix_channels_op(),
          pad_or_trim_op(),
          speed_perturbation_op(),
          gain_op(),
          add_noise_op(),
          normalize_audio_op(),
          spectrogram_op(),
          mel_spectrogram_op(),
          amplitude_to_db_op(),
          log_mel_op(),
          mfcc_op()};
}

}  // namespace spdld::transform
