// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/child.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <thread>

namespace spdld::fake_cuda {
namespace {

void* find_symbol(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
  void* const found = ::dlsym(library, name);
  REQUIRE(found != nullptr);
  return found;
}

template <typename Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(find_symbol(name));
}

}  // namespace

void end_child(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::_Exit(1);
}

std::ostream& operator<<(std::ostream& out, const Ended& ended) {
  return out << "a child that ended with " << ended.code << ": " << ended.said;
}

Ended in_child(const std::vector<std::string>& settings, const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return {.code = -1, .said = "there is no pipe"};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    for (const std::string& setting : settings) {
      const std::size_t equals = setting.find('=');
      ::setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    body();
    std::_Exit(0);
  }
  ::close(ends[1]);
  Ended ended;
  char part[1024];
  while (const ssize_t bytes = ::read(ends[0], part, sizeof part)) {
    if (bytes > 0) ended.said.append(part, static_cast<std::size_t>(bytes));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ended;
}

OtherProcess::OtherProcess(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    REQUIRE(::write(ends[1], "x", 1) == 1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  ::close(ends[0]);
}

void OtherProcess::kill() {
  REQUIRE(::kill(pid_, SIGKILL) == 0);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
}

void OtherProcess::reap() const { REQUIRE(::waitpid(pid_, nullptr, 0) == pid_); }

void* find_function(const char* name, int version) {
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(find_symbol("cuGetProcAddress_v2"));
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  REQUIRE(get(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS);
  REQUIRE(found != nullptr);
  return found;
}

Doors doors() {
  Doors doors{};
  find("fake_cuda_counts", doors.counts);
  find("fake_cuda_read_ledger", doors.read_ledger);
  find("fake_cuda_calls", doors.calls);
  find("fake_cuda_hold", doors.hold);
  find("fake_cuda_let_go", doors.let_go);
  find("fake_cuda_held", doors.held);
  find("fake_cuda_launch", doors.launch);
  find("fake_cuda_peek", doors.peek);
  find("fake_cuda_begin_capture", doors.begin_capture);
  find("fake_cuda_end_capture", doors.end_capture);
  find("fake_cuda_break_context", doors.break_context);
  find("fake_cuda_lose_device", doors.lose_device);
  return doors;
}

FakeCudaCounts own_counts() {
  FakeCudaCounts counts{};
  doors().counts(&counts, nullptr);
  return counts;
}

FakeCudaCounts all_counts() {
  FakeCudaCounts counts{};
  doors().counts(nullptr, &counts);
  return counts;
}

const cuda::Functions& cu() {
  REQUIRE(cuda::driver());
  return *cuda::driver().functions;
}

void use_device(CUdevice device) {
  CUcontext context = nullptr;
  REQUIRE(cu().DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
  REQUIRE(cu().CtxPushCurrent(context) == CUDA_SUCCESS);
}

CUstream new_stream() {
  CUstream stream = nullptr;
  REQUIRE(cu().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
  return stream;
}

CUdeviceptr new_memory(std::size_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(cu().MemAlloc(&address, bytes) == CUDA_SUCCESS);
  return address;
}

void Gate::hold(CUstream stream) {
  REQUIRE(doors().launch(stream, &Gate::wait, this) == CUDA_SUCCESS);
}

void Gate::wait(void* gate) {
  auto& self = *static_cast<Gate*>(gate);
  self.reached_ = true;
  while (!self.open_) std::this_thread::yield();
}

}  // namespace spdld::fake_cuda
