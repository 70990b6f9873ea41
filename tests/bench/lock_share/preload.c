// SPDX-License-Identifier: Apache-2.0
// Preloaded into a daemon under callgrind by lock_share.py.
//
// - Clocks go slower, by the factor SLOW_CLOCK, as the program itself does there: what it does by
// time,
//   such as how many rows it claims at once, it does as it would alone.
// - openat2(), which valgrind may not know, is openat(): files are opened as they would be.
// - With LOCKED=executor, callgrind counts only while the executor's lock is held. That is the
// mutex that
//   the first of its workers to sleep waits with. With LOCKED=any, while any mutex is held.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

static long scale = 1;
static enum { kNone, kExecutors, kAny } counted;
static pthread_mutex_t* executors;
static __thread int held;  // of those that count

static long (*real_syscall)(long, ...);
static int (*real_lock)(pthread_mutex_t*);
static int (*real_trylock)(pthread_mutex_t*);
static int (*real_unlock)(pthread_mutex_t*);
static int (*real_wait)(pthread_cond_t*, pthread_mutex_t*);
static int (*real_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

static void load(void) {
  if (real_lock != NULL) return;
  real_syscall = dlsym(RTLD_NEXT, "syscall");
  real_trylock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
  real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  real_wait = dlsym(RTLD_NEXT, "pthread_cond_wait");
  real_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  const char* const factor = getenv("SLOW_CLOCK");
  if (factor != NULL) scale = atol(factor);
  const char* const locked = getenv("LOCKED");
  if (locked != NULL) counted = strcmp(locked, "any") == 0 ? kAny : kExecutors;
  real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
}

static int counts(const pthread_mutex_t* mutex) {
  return counted == kAny || (counted == kExecutors && mutex == executors);
}

static void locked(const pthread_mutex_t* mutex) {
  if (counts(mutex) && held++ == 0) CALLGRIND_TOGGLE_COLLECT;
}

static void unlocking(const pthread_mutex_t* mutex) {
  if (counts(mutex) && --held == 0) CALLGRIND_TOGGLE_COLLECT;
}

static void learn(pthread_mutex_t* mutex) {
  char name[16] = "";
  if (executors != NULL || pthread_getname_np(pthread_self(), name, sizeof name) != 0) return;
  if (strncmp(name, "spdld-cpu-", 10) == 0) executors = mutex;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  load();
  const int failed = real_lock(mutex);
  locked(mutex);
  return failed;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  load();
  const int failed = real_trylock(mutex);
  if (failed == 0) locked(mutex);
  return failed;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  load();
  unlocking(mutex);
  return real_unlock(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  load();
  unlocking(mutex);
  learn(mutex);
  const int failed = real_wait(condition, mutex);
  locked(mutex);
  return failed;
}

static struct timespec scaled(struct timespec at, long times, long by) {
  const __int128 ns = ((__int128)at.tv_sec * 1000000000 + at.tv_nsec) * times / by;
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  load();
  const struct timespec real = clock == CLOCK_MONOTONIC ? scaled(*until, scale, 1) : *until;
  unlocking(mutex);
  learn(mutex);
  const int failed = real_clockwait(condition, mutex, clock, &real);
  locked(mutex);
  return failed;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  load();
  const long failed = real_syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && clock != CLOCK_REALTIME) *now = scaled(*now, 1, scale);
  return (int)failed;
}

long syscall(long number, ...) {
  load();
  long words[6];
  va_list list;
  va_start(list, number);
  for (int word = 0; word < 6; ++word) words[word] = va_arg(list, long);
  va_end(list);
  if (number == SYS_openat2) {
    const struct open_how* const how = (const struct open_how*)words[2];
    return openat((int)words[0], (const char*)words[1], (int)how->flags, (mode_t)how->mode);
  }
  return real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
