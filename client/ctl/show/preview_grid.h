// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ctl/daemon.h"
#include "ctl/show/grid.h"

namespace spdld::ctl {

// The batch as a picture: of its images or clips (ctl/show/image_grid.h), else of its sound
// (ctl/show/sound_grid.h). Throws Failure if it has none of these.
Grid make_grid(const Preview& preview);

}  // namespace spdld::ctl
