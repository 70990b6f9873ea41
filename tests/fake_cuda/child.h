// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace spdld::fake_cuda {

// The fake reads its environment once, so each test uses it in children, never in its own process.
// In a child REQUIRE ends it where something does not hold.
#define REQUIRE(holds)                                                       \
  do {                                                                       \
    if (!(holds)) ::spdld::fake_cuda::end_child(__FILE__, __LINE__, #holds); \
  } while (false)
[[noreturn]] void end_child(const char* file, int line, const char* what);

struct Ended {
  int code = 0;      // as it exits, or minus the signal that ended it
  std::string said;  // on stderr
};
std::ostream& operator<<(std::ostream& out, const Ended& ended);

// Runs `body` in a child with these settings, "FAKE_CUDA_DEVICES=2", say, until it ends; 0 if it
// comes to its end.
Ended in_child(const std::vector<std::string>& settings, const std::function<void()>& body);

// A child that ends by _Exit keeps its code when ThreadSanitizer has found something.
MATCHER(Succeeds, "") {
  return arg.code == 0 && arg.said.find("ThreadSanitizer") == std::string::npos;
}
MATCHER_P(AbortsSaying, text, "") {
  return arg.code == -6 && arg.said.find(text) != std::string::npos;
}

// A process beside a child, which makes it; it lives until that kills it, or ends.
class OtherProcess {
 public:
  // Returns when `body` has there.
  explicit OtherProcess(const std::function<void()>& body);
  void kill();  // it is a zombie then
  void reap() const;

 private:
  int pid_ = 0;
};

// The fake's side doors, and the functions of the driver, in a child.
struct Doors {
  decltype(&fake_cuda_counts) counts;
  decltype(&fake_cuda_read_ledger) read_ledger;
  decltype(&fake_cuda_calls) calls;
  decltype(&fake_cuda_hold) hold;
  decltype(&fake_cuda_let_go) let_go;
  decltype(&fake_cuda_held) held;
  decltype(&fake_cuda_launch) launch;
  decltype(&fake_cuda_peek) peek;
  decltype(&fake_cuda_begin_capture) begin_capture;
  decltype(&fake_cuda_end_capture) end_capture;
  decltype(&fake_cuda_break_context) break_context;
  decltype(&fake_cuda_lose_device) lose_device;
};
Doors doors();
FakeCudaCounts own_counts();
FakeCudaCounts all_counts();
// A function of the driver before it is started.
void* find_function(const char* name, int version);
const cuda::Functions& cu();

// Makes the primary context of a device current.
void use_device(CUdevice device = 0);
CUstream new_stream();
CUdeviceptr new_memory(std::size_t bytes);

// A kernel that runs until it is let go.
class Gate {
 public:
  void hold(CUstream stream);
  void open() { open_ = true; }
  bool reached() const { return reached_; }

 private:
  static void wait(void* gate);
  std::atomic<bool> reached_{false};
  std::atomic<bool> open_{false};
};

}  // namespace spdld::fake_cuda
