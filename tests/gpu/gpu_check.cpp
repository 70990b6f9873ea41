// SPDX-License-Identifier: Apache-2.0
// gpu_check SOURCE_SERVER [CLAIM...]: shows the claims of docs/gpu.md on whatever driver there is,
// one line of a table each, and exits with the number of those that do not hold. What it needs to
// read device memory, and to keep a stream busy, are copies alone, so that it runs on the fake
// driver, too.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "spdld/loader.h"
#include "tests/gpu/server_process.h"
#include "tests/gpu/stamps.h"

namespace spdld::gpu {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "gpu_check: %s\n", why.c_str());
  std::exit(1);
}

// The first device, with its primary context current.
class Gpu {
 public:
  Gpu() : driver_(cuda::driver()) {
    if (!driver_) die(driver_.why_not);
    CUcontext context = nullptr;
    check(cu().DevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cu().CtxPushCurrent(context), "cuCtxPushCurrent");
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    to_host_ = reinterpret_cast<ToHost>(::dlsym(library, "cuMemcpyDtoHAsync_v2"));
    check(cu().StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  }

  const cuda::Functions& cu() const { return *driver_.functions; }
  CUstream stream() const { return stream_; }
  std::uintptr_t stream_number() const { return reinterpret_cast<std::uintptr_t>(stream_); }
  void check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS)
      die(std::string(what) + ": " + cuda::error_text(*driver_.functions, result));
  }
  void synchronize() const { check(cu().StreamSynchronize(stream_), "cuStreamSynchronize"); }
  CUevent event() const {
    CUevent event = nullptr;
    check(cu().EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return event;
  }
  std::byte* pinned(std::uint64_t bytes) const {
    void* memory = nullptr;
    check(cu().MemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    return static_cast<std::byte*>(memory);
  }
  void to_host(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    check(to_host_(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream_), "cuMemcpyDtoHAsync");
  }
  struct Vram {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  Vram vram() const {
    Vram vram;
    check(cu().MemGetInfo(&vram.free, &vram.total), "cuMemGetInfo");
    return vram;
  }
  std::uint64_t free_bytes() const { return vram().free; }
  std::string text() const {
    char name[128] = {};
    cu().DeviceGetName(name, sizeof name, 0);
    return std::string(name) + ", CUDA " + std::to_string(driver_.version / 1000) + "." +
           std::to_string(driver_.version % 1000 / 10);
  }

 private:
  using ToHost = CUresult (*)(void*, CUdeviceptr, std::size_t, CUstream);
  const cuda::Driver& driver_;
  ToHost to_host_ = nullptr;
  CUstream stream_ = nullptr;
};

Loader open(const ServerProcess& server, std::uint32_t prefetch = 4) {
  return Loader::open({.pipeline = "made-up",
                       .job = "",
                       .rank = 0,
                       .world_size = 1,
                       .prefetch = prefetch,
                       .device = "cuda",
                       .address = server.address()});
}

Batch next(Loader& loader) {
  auto batch = loader.next();
  if (!batch) die("an epoch without end has ended");
  return *std::move(batch);
}

// In which way the last batch came, if it is not the one that is looked at; else empty.
std::string other_way(Loader& loader, bool ipc) {
  const LoaderStats stats = loader.stats();
  if (stats.staged > 0) return "staged: " + stats.staged_why;
  return stats.delivery == (ipc ? "cuda ipc" : "pinned") ? "" : "delivery is " + stats.delivery;
}

struct Outcome {
  bool holds = false;
  std::string figure;
};

// How much less memory is free than was before.
std::string more_mib(std::uint64_t free_before, std::uint64_t free_after) {
  char text[48];
  std::snprintf(text, sizeof text, "%g MiB more",
                (static_cast<double>(free_before) - static_cast<double>(free_after)) / kMiB);
  return text;
}

class Checks {
 public:
  explicit Checks(std::string server) : server_(std::move(server)) {}

  // Each batch is let go of before the copies that read it have run.
  Outcome values(bool ipc) {
    const std::uint64_t bytes = 8 * kMiB;
    const std::uint64_t batches = setting("GPU_CHECK_BATCHES", 400);
    constexpr std::size_t kLate = 3;
    const ServerProcess server(server_, bytes, ipc);
    Loader loader = open(server);
    struct Read {
      std::uint64_t step = 0;
      std::byte* copy = nullptr;
      CUevent over = nullptr;
    };
    std::deque<Read> reads;
    for (std::size_t i = 0; i < kLate; ++i)
      reads.push_back({.copy = gpu_.pinned(bytes), .over = gpu_.event()});
    std::uint64_t wrong = 0;
    const auto look_at = [&](const Read& read) {
      gpu_.check(gpu_.cu().EventSynchronize(read.over), "cuEventSynchronize");
      if (!is_of(read.copy, bytes, read.step)) ++wrong;
    };
    for (std::uint64_t step = 0; step < batches; ++step) {
      Read read = reads.front();
      reads.pop_front();
      // Those of the steps between are still to come, and so the stream is never idle.
      if (step >= kLate) look_at(read);
      Batch batch = next(loader);
      batch.make_ready(gpu_.stream_number());
      gpu_.to_host(read.copy, batch["image"].data, bytes);
      gpu_.check(gpu_.cu().EventRecord(read.over, gpu_.stream()), "cuEventRecord");
      read.step = step;
      reads.push_back(read);
      if (const std::string other = other_way(loader, ipc); !other.empty()) return {false, other};
    }
    for (const Read& read : reads) {
      look_at(read);
      gpu_.check(gpu_.cu().MemFreeHost(read.copy), "cuMemFreeHost");
      gpu_.check(gpu_.cu().EventDestroy(read.over), "cuEventDestroy");
    }
    return {wrong == 0, std::to_string(batches) + " batches, " + std::to_string(wrong) + " wrong"};
  }

  // VRAM is where it was, with a context of the server's there all the time.
  Outcome attaches() {
    const std::uint64_t attaches = setting("GPU_CHECK_ATTACHES", 10'000);
    const ServerProcess server(server_, 2 * kMiB, true);
    Loader keeps_context = open(server);
    (void)next(keeps_context);
    const auto attach = [&] {
      Loader loader = open(server, 2);
      Batch batch = next(loader);
      batch.make_ready(gpu_.stream_number());
    };
    for (int i = 0; i < 8; ++i) attach();
    const std::uint64_t before = settled_free_bytes(0);
    for (std::uint64_t i = 0; i < attaches; ++i) attach();
    const std::uint64_t after = settled_free_bytes(before);
    return {after >= before,
            std::to_string(attaches) + " attaches, VRAM " + more_mib(before, after)};
  }

  // Consumers that are killed while they read, each in a process of its own. What VRAM
  // has in the middle decides nothing, and tells the reader whether more is taken by each kill.
  Outcome consumer_kills() {
    const std::uint64_t kills = setting("GPU_CHECK_CONSUMER_KILLS", 100);
    const ServerProcess server(server_, 8 * kMiB, true);
    Loader keeps_context = open(server);
    Batch held = next(keeps_context);
    // A driver may take memory for itself, page tables say, when a second consumer's arena is there
    // for the first time: these consumers live long enough to read.
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kills, 8); ++i)
      kill_consumer(server, std::chrono::milliseconds(1500));
    const std::uint64_t before = settled_free_bytes(0);
    const std::uint64_t used = gpu_.vram().total - before;
    std::uint64_t in_the_middle = before;
    std::mt19937 random(1);
    for (std::uint64_t i = 0; i < kills; ++i) {
      if (i == kills / 2) in_the_middle = settled_free_bytes(before);
      kill_consumer(server, std::chrono::milliseconds(random() % 1500));
    }
    const std::uint64_t after = settled_free_bytes(before);
    std::uint64_t step = held.step();
    for (int i = 0; i < 20; ++i) {
      held = next(keeps_context);
      if (held.step() != ++step) return {false, "the one that lives lost a batch"};
    }
    return {after >= before, std::to_string(kills) + " kills, VRAM " + more_mib(before, after) +
                                 " (" + more_mib(before, in_the_middle) + " after " +
                                 std::to_string(kills / 2) + "; " + std::to_string(used / kMiB) +
                                 " MiB were in use before), the other consumer goes on"};
  }

  // A server that is killed under a batch.
  Outcome server_kills() {
    const std::uint64_t kills = setting("GPU_CHECK_SERVER_KILLS", 20);
    const std::uint64_t bytes = 8 * kMiB;
    ServerProcess server(server_, bytes, true);
    std::byte* const copy = gpu_.pinned(bytes);
    Loader loader = open(server);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kills; ++i) {
      Batch batch = next(loader);
      const std::uint64_t step = stamp_of(batch, copy);
      server.kill();
      if (stamp_of(batch, copy) != step) ++wrong;
      server.start();
      batch = next(loader);
      if (!is_of_one_step(batch, copy)) ++wrong;
    }
    gpu_.check(gpu_.cu().MemFreeHost(copy), "cuMemFreeHost");
    return {wrong == 0, std::to_string(kills) + " kills, " + std::to_string(wrong) +
                            " batches not as they were"};
  }

  // Beside a bare loop of copies from one pinned buffer.
  Outcome bandwidth(bool ipc) {
    const std::uint64_t bytes = setting("GPU_CHECK_BATCH_MIB", 64) * kMiB;
    const std::uint64_t batches = setting("GPU_CHECK_BANDWIDTH_BATCHES", 200);
    std::byte* const from = gpu_.pinned(bytes);
    CUdeviceptr to = 0;
    gpu_.check(gpu_.cu().MemAlloc(&to, bytes), "cuMemAlloc");
    const auto begun = Clock::now();
    for (std::uint64_t i = 0; i < batches; ++i)
      gpu_.check(gpu_.cu().MemcpyHtoDAsync(to, from, bytes, gpu_.stream()), "cuMemcpyHtoDAsync");
    gpu_.synchronize();
    const double bare = seconds_since(begun);
    gpu_.check(gpu_.cu().MemFree(to), "cuMemFree");
    gpu_.check(gpu_.cu().MemFreeHost(from), "cuMemFreeHost");

    const ServerProcess server(server_, bytes, ipc);
    Loader loader = open(server);
    for (int i = 0; i < 12; ++i) (void)next(loader);  // all slots are registered by then
    const auto begun_too = Clock::now();
    for (std::uint64_t i = 0; i < batches; ++i) {
      const Batch batch = next(loader);
      batch.make_ready(gpu_.stream_number());
    }
    gpu_.synchronize();
    const double ours = seconds_since(begun_too);
    if (const std::string other = other_way(loader, ipc); !other.empty()) return {false, other};
    const double gib = static_cast<double>(bytes * batches) / (1u << 30);
    char figure[96];
    std::snprintf(figure, sizeof figure, "%.1f GiB/s, bare copies %.1f GiB/s: %.2f", gib / ours,
                  gib / bare, bare / ours);
    return {bare / ours >= 0.9, figure};
  }

  // With batches there; the median.
  Outcome next_time(bool ipc) {
    const std::uint64_t rounds = setting("GPU_CHECK_NEXTS", 400);
    const ServerProcess server(server_, kMiB, ipc);
    Loader loader = open(server, 16);
    std::vector<double> micros;
    while (micros.size() < rounds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the ring fills
      for (int i = 0; i < 8; ++i) {
        const std::uint64_t waits = loader.stats().waits;
        const auto begun = Clock::now();
        const Batch batch = next(loader);
        const double took = seconds_since(begun) * 1e6;
        // The first ones after a rest find caches and clocks cold.
        if (i >= 2 && loader.stats().waits == waits) micros.push_back(took);
      }
    }
    std::nth_element(micros.begin(), micros.begin() + micros.size() / 2, micros.end());
    const double median = micros[micros.size() / 2];
    char figure[64];
    std::snprintf(figure, sizeof figure, "%.1f us (median of %zu)", median, micros.size());
    return {median <= 20, figure};
  }

  std::string gpu_text() const { return gpu_.text(); }

 private:
  // Starts a consumer, and kills it after so long.
  static void kill_consumer(const ServerProcess& server, std::chrono::milliseconds after) {
    const char* const starter = std::getenv("GPU_CHECK_SELF");  // where a script has to
    const char* const self = starter == nullptr ? "/proc/self/exe" : starter;
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl(self, self, "--consume", server.address().c_str(), nullptr);
      ::_exit(127);
    }
    std::this_thread::sleep_for(after);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  // What the other processes let go of may take the driver a moment.
  std::uint64_t settled_free_bytes(std::uint64_t wanted) const {
    std::uint64_t free = gpu_.free_bytes();
    for (int i = 0; i < 100; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::uint64_t now = gpu_.free_bytes();
      if (wanted > 0 ? now >= wanted : now == free && i >= 5) return now;
      free = now;
    }
    return free;
  }
  std::uint64_t stamp_of(const Batch& batch, std::byte* copy) const {
    const TensorView& image = batch["image"];
    batch.make_ready(gpu_.stream_number());
    gpu_.to_host(copy, image.data, image.bytes);
    gpu_.synchronize();
    return stamp_at(copy);
  }
  bool is_of_one_step(const Batch& batch, std::byte* copy) const {
    return is_of(copy, batch["image"].bytes, stamp_of(batch, copy));
  }

  const std::string server_;
  Gpu gpu_;
};

// A consumer that is going to be killed: it holds batches, and copies from them.
[[noreturn]] void consume(const char* address) {
  const Gpu gpu;
  Loader loader = Loader::open({.pipeline = "made-up",
                                .job = "",
                                .rank = 0,
                                .world_size = 1,
                                .device = "cuda",
                                .address = address});
  std::byte* const copy = gpu.pinned(8 * kMiB);
  std::deque<Batch> held;
  for (;;) {
    held.push_back(next(loader));
    held.back().make_ready(gpu.stream_number());
    gpu.to_host(copy, held.back()["image"].data, 8 * kMiB);
    if (held.size() > 2) held.pop_front();
  }
}

int run(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--consume") consume(argv[2]);
  if (argc < 2) die("gpu_check SOURCE_SERVER [CLAIM...]");
  Checks checks(argv[1]);
  struct Claim {
    std::string text;
    std::function<Outcome()> check;
    bool has(const char* word) const { return text.find(word) != std::string::npos; }
  };
  const std::vector<Claim> claims = {
      {"values arrive, and no slot is filled while a stream reads it: pinned",
       [&] { return checks.values(false); }},
      {"values arrive, and no slot is filled while a stream reads it: cuda ipc",
       [&] { return checks.values(true); }},
      {"attach and detach leave no VRAM behind", [&] { return checks.attaches(); }},
      {"killed consumers leave no VRAM behind", [&] { return checks.consumer_kills(); }},
      {"a batch outlives its daemon", [&] { return checks.server_kills(); }},
      {"next() takes at most 20 us: pinned", [&] { return checks.next_time(false); }},
      {"next() takes at most 20 us: cuda ipc", [&] { return checks.next_time(true); }},
      {"at least 0.9 of bare pinned copies: pinned", [&] { return checks.bandwidth(false); }},
      {"at least 0.9 of bare pinned copies: cuda ipc", [&] { return checks.bandwidth(true); }}};
  for (int i = 2; i < argc; ++i) {
    const auto has_it = [&](const Claim& claim) { return claim.has(argv[i]); };
    if (std::any_of(claims.begin(), claims.end(), has_it)) continue;
    std::string known;
    for (const Claim& claim : claims) known += "\n  " + claim.text;
    die("no claim has '" + std::string(argv[i]) + "' in it; they are:" + known);
  }
  std::printf("On %s:\n\n| claim | holds | figure |\n|---|---|---|\n", checks.gpu_text().c_str());
  int broken = 0;
  for (const Claim& claim : claims) {
    const auto wants_it = [&](const char* word) { return claim.has(word); };
    if (argc > 2 && std::none_of(argv + 2, argv + argc, wants_it)) continue;
    const Outcome outcome = claim.check();
    broken += outcome.holds ? 0 : 1;
    std::printf("| %s | %s | %s |\n", claim.text.c_str(), outcome.holds ? "yes" : "NO",
                outcome.figure.c_str());
    std::fflush(stdout);
  }
  return broken;
}

}  // namespace
}  // namespace spdld::gpu

int main(int argc, char** argv) {
  try {
    return spdld::gpu::run(argc, argv);
  } catch (const spdld::Error& error) {
    std::fprintf(stderr, "gpu_check: %s\n", error.what());
    return 1;
  }
}
