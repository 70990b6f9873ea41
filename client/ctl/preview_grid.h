// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ctl/daemon.h"
#include "ctl/grid.h"

namespace spdld::ctl {

// The batch as a picture: of its images or clips (ctl/image_grid.h), else of its sound
// (ctl/sound_grid.h). Throws Failure if it has none of these.
Grid make_grid(const Preview& preview);

}  // namespace spdld::ctl
