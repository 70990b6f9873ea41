// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::ctl {

// `completion bash` and `completion zsh` print these texts: the files beside this one.
extern const char* const kBashCompletion;
extern const char* const kZshCompletion;

}  // namespace spdld::ctl
