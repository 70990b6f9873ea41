/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* The side doors of the fake libcuda.so.1: what a test does that the real driver does for kernels,
 * or never does. Look them up by dlsym in the library that is loaded.
 *
 * The environment tells the fake what to be. It is read once, at the first call. Each name begins
 * with FAKE_CUDA_:
 *
 *   - DEVICES=2            how many devices the machine has (1)
 *   - NAMES=A,B            their names ("Fake GPU 0", ...)
 *   - UUIDS=X,Y            their UUIDs, of 8-4-4-4-12 hexadecimal digits (made of the index)
 *   - MEMORY=BYTES         memory of each device (1 GiB)
 *   - ATTRIBUTES=113=0,..  values of numbers of CUdevice_attribute, for all devices
 *   - READ_ONLY_ACCESS=0   cuMemSetAccess does not support to grant access for reading alone
 *   - COMPUTE_MODE=MODE    default, exclusive or prohibited
 *   - MIG=1                all devices are MIG instances, of which a process sees one
 *   - VERSION=12080        the answer of cuDriverGetVersion
 *   - INIT=CUDA_ERROR_...  the result of cuInit
 *   - MISSING=cuA,cuB      functions that cuGetProcAddress does not find
 *   - FAIL=cuA:3:ERROR,..  the 3rd call of cuA returns CUDA_ERROR_... and does nothing
 *   - LEDGER=PATH          the file in which all processes account for what they hold
 *   - SEED=N               draws the order of work across streams, and its delays (0)
 *   - LATENESS=N           delays each piece of work by up to N turns of the scheduler (0)
 *
 * CUDA_VISIBLE_DEVICES is honoured. A value that cannot be read ends the process.
 *
 * It is stricter than the driver where code that relies on leniency is wrong: every call but those
 * about devices needs a current context, handles are never used twice, and all calls that change
 * memory are refused while a graph is captured. Driver 580 allows the calls of virtual memory
 * during a capture, and all of them but cuMemGetInfo without a context; spdld runs on drivers since
 * 470, and does not count on it. The process ends with a message when host memory is unmapped while
 * registered, when memory is let go while a copy reads or writes it, and when a handle of memory is
 * used after its release.
 *
 * Processes share memory of devices, by descriptors, with or without a ledger; a ledger counts what
 * was created by its own processes.
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FakeCudaCounts {
  uint64_t processes;     /* that have called cuInit and are alive */
  uint64_t contexts;      /* primary contexts that are retained */
  uint64_t device_bytes;  /* by cuMemAlloc */
  uint64_t registrations; /* by cuMemHostRegister */
  uint64_t registered_bytes;
  uint64_t host_allocations; /* by cuMemHostAlloc */
  uint64_t streams;
  uint64_t events;
  uint64_t left_behind; /* of all these, those that still were when their context ended */
  uint64_t handles;     /* by cuMemCreate and cuMemImportFromShareableHandle, not released */
  uint64_t reservations;
  uint64_t mapped_ranges;
  /* By cuMemCreate: of a process, what it has handles of or has mapped; of all, what is alive, be
   * it held by nothing but a descriptor. */
  uint64_t shared_bytes;
} FakeCudaCounts;

/* What this process holds, and what all processes of its ledger hold together; either may be null.
 */
void fake_cuda_counts(FakeCudaCounts* of_this_process, FakeCudaCounts* of_all);
/* What the living processes of the ledger at `path` hold; works without cuInit. 0, or -1 where
 * there is no such ledger. */
int fake_cuda_read_ledger(const char* path, FakeCudaCounts* counts);

/* How often this process has called a function, "cuMemAlloc", say. */
uint64_t fake_cuda_calls(const char* function);

/* From the nth call of a function on, the first being 1, those who call it wait for
 * fake_cuda_let_go(), as they do for a device that is stuck. Calls that wait now: fake_cuda_held().
 */
void fake_cuda_hold(const char* function, uint64_t call);
void fake_cuda_let_go(void);
uint64_t fake_cuda_held(void);

/* Runs `kernel` in the order of the stream, on a thread of its own: it may read and write device
 * memory through fake_cuda_peek, may block, and calls nothing of CUDA. */
CUresult fake_cuda_launch(CUstream stream, void (*kernel)(void*), void* argument);

/* Launches a kernel that copies `bytes` of device memory to `out`, the second half `pause_us`
 * microseconds after the first one. It needs no lock of whoever waits for it, as one in Python
 * does. */
CUresult fake_cuda_launch_read(CUstream stream, CUdeviceptr address, size_t bytes,
                               uint32_t pause_us, void* out);

/* Where the CPU finds the content of device memory; null if there is no allocation. */
void* fake_cuda_peek(CUdeviceptr address);

/* As cuStreamBeginCapture in global mode, and cuStreamEndCapture with the graph thrown away. */
CUresult fake_cuda_begin_capture(CUstream stream);
CUresult fake_cuda_end_capture(CUstream stream);

/* From now on calls in the device's context return the error; what is pending never runs. */
CUresult fake_cuda_break_context(int ordinal, CUresult error);
/* The same with CUDA_ERROR_ECC_UNCORRECTABLE, for all contexts to come too. */
CUresult fake_cuda_lose_device(int ordinal);

#ifdef __cplusplus
}
#endif
