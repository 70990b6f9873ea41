// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <optional>
#include <string_view>

namespace spdld::fake_cuda {

// An error as cuGetErrorName and cuGetErrorString tell it; null for numbers that are none.
struct ErrorWords {
  CUresult error;
  const char* name;
  const char* text;
};
const ErrorWords* words_of(CUresult error);

std::optional<CUresult> error_of(std::string_view name);

// Ends the process: the test, or what it tests, has done what no driver could tell it.
[[noreturn]] void abort_with(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace spdld::fake_cuda
