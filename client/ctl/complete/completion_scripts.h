// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::ctl {

// What `completion bash` and `completion zsh` print: the files beside this one.
extern const char* const kBashCompletion;
extern const char* const kZshCompletion;

}  // namespace spdld::ctl
