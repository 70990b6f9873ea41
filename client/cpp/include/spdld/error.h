// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#if defined(__GNUC__)
#define SPDLD_API __attribute__((visibility("default")))
#else
#define SPDLD_API
#endif

namespace spdld {

// What libspdld throws. The message says what failed, on which thing, and what to do; `code` is
// gRPC's number for it.
class SPDLD_API Error : public std::runtime_error {
 public:
  Error(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// No daemon, or the daemon is gone and did not come back in time, or it speaks another protocol.
class SPDLD_API ConnectionError : public Error {
 public:
  using Error::Error;
};

// The daemon refused, or the pipeline failed: its own words.
class SPDLD_API PipelineError : public Error {
 public:
  using Error::Error;
};

// The caller holds what it must let go, or lets go of what is still in use.
class SPDLD_API LeaseError : public Error {
 public:
  using Error::Error;
};

// The GPU that batches were to go to cannot be had, or it failed.
class SPDLD_API DeviceError : public Error {
 public:
  using Error::Error;
};

// The daemon is there, and it has been silent, or what is waited for has not come on, for too long.
class SPDLD_API TimeoutError : public Error {
 public:
  using Error::Error;
};

}  // namespace spdld
