// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

// Failpoints: named places at which a test makes this process die, stop, wait or see a system call
// fail, so that "killed between these two lines" is a test and not luck. They exist only where
// CMake was given -DSPDLD_FAILPOINTS=ON (dev, asan, tsan); elsewhere the macros below are nothing,
// and neither names nor code are in the program. docs/contributing.md tells how to use them.
//
//   SPDLD_FAILPOINT("a.b")          cannot fail: kill, stop, delay
//   SPDLD_FAILPOINT_ERRNO("a.b")    an errno, or 0: also error(ENOSPC)
//   SPDLD_FAILPOINT_STATUS("a.b")   leaves the function with that error, as Status or Result<T>
//   SPDLD_ARM_FAILPOINTS()          once at the start: a Status that says what $SPDLD_FAILPOINTS
//                                   has wrong
#if defined(SPDLD_FAILPOINTS)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace spdld::failpoint {

struct Point {
  std::string_view name;
  bool can_fail;  // the place asks for an errno
};

// All of them: a place names one of these, or does not compile.
inline constexpr std::array kPoints{
    Point{"delivery.arena.create", true},      // room is reserved, nothing is mapped
    Point{"delivery.arena.pages", true},       // before the kernel is asked for a slot's pages
    Point{"delivery.arena.send", false},       // before a consumer is sent an arena's fd
    Point{"delivery.batch.send", false},       // its slot is leased, nobody has been told
    Point{"delivery.batch.sent", false},       // the consumer may read it
    Point{"delivery.consumer.closed", false},  // its leases have not been taken back
    Point{"delivery.release", false},          // a lease has come back, nobody has taken note
    Point{"delivery.slot.committed", false},   // written, not yet sent
    Point{"delivery.slot.loaned", false},      // nothing has been written to it
    Point{"session.keep", false},              // what is to be written is decided, nothing is
    Point{"session.swap.commit", false},       // decided by its caller, not on disk
    Point{"session.swap.committed", false},    // on disk, carried out nowhere
    Point{"session.swap.told", false},         // one shard more has been told
    Point{"source.file.open", true},
    Point{"source.file.read", true},
    Point{"source.listing.write", true},  // the index of a dataset, before its bytes are kept
    Point{"store.commit", false},         // what changes is in SQLite's hands, not on disk
};

// The place of a name in kPoints; what is not there, or asks for what it cannot have, is an error
// of the compiler's.
consteval std::size_t index_of(std::string_view name, bool can_fail) {
  for (std::size_t i = 0; i < kPoints.size(); ++i) {
    if (kPoints[i].name != name) continue;
    if (kPoints[i].can_fail != can_fail) throw "kPoints says otherwise of whether this can fail";
    return i;
  }
  throw "there is no such failpoint: add it to kPoints";
}

// What is to happen at which hit of which point. Made once, by parse(); hit() is thread-safe.
//
//   name=kill            SIGKILL to this process at the first hit
//   name=stop@3          SIGSTOP at the third hit, and at no other
//   name=error(ENOSPC)@2+   from the second hit on; without @, from the first on
//   name=delay(50)       waits 50 ms, each time
//
// Parts are separated by ';'; what is not exactly so is refused.
class Failpoints {
 public:
  static Result<std::unique_ptr<Failpoints>> parse(std::string_view text);

  // An errno that the place is to see, or 0.
  int hit(std::size_t point);

 private:
  enum class Action { kNone, kKill, kStop, kError, kDelay };

  struct Armed {
    Action action = Action::kNone;
    int err = 0;
    std::uint32_t delay_ms = 0;
    std::uint64_t first = 1;
    bool repeats = true;
    // Relaxed is enough: only the count matters, and each hit gets a number of its own.
    std::atomic<std::uint64_t> hits{0};
  };

  static Status parse_action(std::string_view text, const Point& point, Armed& armed);
  static Status parse_part(std::string_view part, Failpoints& into);

  std::array<Armed, kPoints.size()> armed_;
};

// From here on the process's places follow `points`, for good: threads may be at one at any time.
void arm(std::unique_ptr<Failpoints> points);
// arm() with what the environment variable SPDLD_FAILPOINTS says, if it is set.
Status arm_from_environment();

// Where the macros lead; 0 while nothing is armed.
int hit(std::size_t point);
Status hit_status(std::size_t point);

}  // namespace spdld::failpoint

#define SPDLD_FAILPOINT(name) \
  static_cast<void>(::spdld::failpoint::hit(::spdld::failpoint::index_of(name, false)))
#define SPDLD_FAILPOINT_ERRNO(name) \
  ::spdld::failpoint::hit(::spdld::failpoint::index_of(name, true))
#define SPDLD_FAILPOINT_STATUS(name) \
  SPDLD_TRY(::spdld::failpoint::hit_status(::spdld::failpoint::index_of(name, true)))
#define SPDLD_ARM_FAILPOINTS() ::spdld::failpoint::arm_from_environment()

#else

#define SPDLD_FAILPOINT(name) static_cast<void>(0)
#define SPDLD_FAILPOINT_ERRNO(name) 0
#define SPDLD_FAILPOINT_STATUS(name) static_cast<void>(0)
#define SPDLD_ARM_FAILPOINTS() \
  ::spdld::Status {}

#endif
