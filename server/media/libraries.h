// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::media {

// The libraries that decode media, with their versions, and the codecs that they decode and do not
// decode here: lines of text.
std::string describe_libraries();

}  // namespace spdld::media
