// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_cuda/scheduler.h"

namespace spdld::fake_cuda {

// A graph that is being captured: what its streams are given is not run.
struct Capture {
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread = {};
  bool invalidated = false;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Stream {
  CUstream handle = nullptr;
  CUcontext context = nullptr;
  bool legacy = false;    // the default stream of its context
  bool blocking = false;  // waits for the legacy stream, and is waited for by it
  Scheduler::QueuePtr queue = nullptr;
  CapturePtr capture = nullptr;
};

// What becomes of a call that gives work to a stream.
enum class Use { kRun, kCaptured };

// The streams of this process: those that were created, the default stream of each context, and
// each thread's own. Guarded by the lock of the driver.
class Streams {
 public:
  explicit Streams(Scheduler& scheduler) : scheduler_(scheduler) {}

  CUstream create(CUcontext context, bool blocking) {
    return open(context, false, blocking).handle;
  }
  // The stream that a handle, special ones included, means in a context; null: none of it.
  Stream* find(CUstream handle, CUcontext context);
  // Its work is finished none the less.
  void destroy(const Stream& stream);
  // Returns how many of them had been created.
  std::uint64_t destroy_all(CUcontext context);

  // Appends work behind `after`, and behind what default streams are ordered by.
  Point add(const Stream& stream, std::vector<Point> after, std::function<void()> run,
            bool long_running = false);

  // Asked before work is given to a stream; may invalidate captures.
  CUresult begin_use(Stream& stream, Use& use);

  CUresult begin_capture(Stream& stream, CUstreamCaptureMode mode);
  CUresult end_capture(Stream& stream);
  // Whether the legacy stream cannot be used since a blocking stream of its context is capturing.
  bool captured_implicitly(const Stream& stream) const;
  // Refuses, and invalidates what it is refused for, where the calling thread may not make calls
  // that a graph that is being captured could not see.
  CUresult refuse_while_capturing();

 private:
  Stream& open(CUcontext context, bool legacy, bool blocking);

  Scheduler& scheduler_;
  std::map<CUstream, Stream> streams_;
  std::map<CUcontext, CUstream> legacy_;
  std::map<std::pair<CUcontext, std::thread::id>, CUstream> per_thread_;
};

// How the calling thread looks at captures of other threads, and of its own.
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode);

}  // namespace spdld::fake_cuda
