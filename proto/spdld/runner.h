// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Frames of the runner socket (runtime_dir/runner.sock), and what lies in the memory that the
// daemon shares with the children of a runner: the processes that call a user's own function on
// rows. One frame is one SOCK_SEQPACKET message, little-endian, fixed-width; reserved bytes are
// zero when sent and ignored when received. File descriptors go from the daemon alone.
//
//   supervisor                    daemon
//   SupervisorHello      ->
//                        <-       PoolOpen (+ fd of its JSON) | TurnedAway
//   ChildEnded, ImportFailed, Looked ->
//                        <-       Kill, Look, End
//
//   child                         daemon
//   ChildHello           ->
//                        <-       CellsOpen (+ 2 fds), Call ... | TurnedAway
//   Answer               ->
//
// A child's two memfds are divided in kCells cells each. A Call's rows lie in one cell of the
// input:
//
//   byte 0     RowEntry, then an ArgumentEntry for each argument; so for each row of the call
//   behind     the bytes that these name, at multiples of kDataAlignment
//
// and its answers, in the cell of the same number of the other memfd, likewise:
//
//   byte 0     AnswerEntry, then a FieldEntry for each field; so for kMaxCallRows rows
//   behind     the bytes that these name
//
// The child writes AnswerEntry's first eight bytes last, at once. What it has written so counts as
// answered even if it dies before it says so by an Answer.
namespace spdld::runner {

inline constexpr std::uint32_t kRunnerMagic = 0x4e525053;  // "SPRN"
inline constexpr std::uint32_t kRunnerVersion = 3;
inline constexpr std::uint32_t kMaxRunnerFrameBytes = 32768;
inline constexpr std::uint32_t kCells = 2;  // calls that a child may have at once
inline constexpr std::uint32_t kMaxCallRows = 64;
inline constexpr std::uint64_t kDataAlignment = 64;
inline constexpr std::uint32_t kKeyBytes = 32;  // of a pool: hexadecimal digits
inline constexpr int kMaxCallRank = 8;          // dimensions of an array
// RowEntry::item of a row that asks a dataset what it is, and for no item.
inline constexpr std::uint64_t kDescribe = ~std::uint64_t{0};
// What an interpreter is given to come up and to say hello, before another one is started.
inline constexpr std::uint32_t kStartPatienceS = 5;

enum class RunnerFrameType : std::uint32_t {
  // supervisor or child -> daemon
  kSupervisorHello = 1,
  kChildHello = 2,
  kAnswer = 3,
  kChildEnded = 4,
  kImportFailed = 5,
  kLooked = 6,
  // daemon -> supervisor or child
  kTurnedAway = 64,
  kPoolOpen = 65,
  kCellsOpen = 66,
  kCall = 67,
  kKill = 68,
  kEnd = 69,
  kLook = 70,
};

struct RunnerHeader {
  RunnerFrameType type;
  std::uint32_t bytes;  // of the whole frame, this header included
};
static_assert(sizeof(RunnerHeader) == 8);

struct SupervisorHello {
  RunnerHeader header;
  std::uint32_t magic;
  std::uint32_t version;
  char key[32];      // of the pool that it is to serve
  char python[56];   // its interpreter and version, for messages
  std::int32_t pid;  // its own pid, as it sees it
  std::uint32_t reserved;
};
static_assert(sizeof(SupervisorHello) == 112);
static_assert(__builtin_offsetof(SupervisorHello, pid) == 104);

struct ChildHello {
  RunnerHeader header;
  std::uint32_t magic;
  std::uint32_t version;
  char key[32];
  std::uint8_t token[16];  // its supervisor's
  std::uint32_t number;    // among the supervisor's children
  std::int32_t pid;        // as its supervisor sees it
  std::uint32_t awaits;    // 1: the function is a coroutine's, whose rows of a call run at once
  std::uint32_t reserved;
  std::uint8_t code[16];  // a digest of the file that the function was imported from; 0: not known
};
static_assert(sizeof(ChildHello) == 96);
static_assert(__builtin_offsetof(ChildHello, token) == 48);

// The supervisor is to serve the pool that the JSON tells of. Carries one fd, which that is in.
struct PoolOpen {
  RunnerHeader header;
  std::uint8_t token[16];
  std::uint64_t json_bytes;
};
static_assert(sizeof(PoolOpen) == 32);

// Ends the connection; UTF-8 text follows. Codes are gRPC's (server/base/status.h).
struct TurnedAway {
  RunnerHeader header;
  std::uint32_t code;
  std::uint32_t text_bytes;
};
static_assert(sizeof(TurnedAway) == 16);

// The memory for all calls from here on; no call is under way. Carries two fds: the input, which
// can only be read, and the answers.
struct CellsOpen {
  RunnerHeader header;
  std::uint64_t input_cell_bytes;
  std::uint64_t answer_cell_bytes;
};
static_assert(sizeof(CellsOpen) == 24);

struct Call {
  RunnerHeader header;
  std::uint64_t call;  // counted from 1
  std::uint32_t cell;
  std::uint32_t rows;  // 1..kMaxCallRows
};
static_assert(sizeof(Call) == 24);

// The answers of `count` rows of the call lie in its cell, from the row `first` on.
struct Answer {
  RunnerHeader header;
  std::uint64_t call;
  std::uint32_t first;
  std::uint32_t count;
};
static_assert(sizeof(Answer) == 24);

// The supervisor is to end this child, and to start another.
struct Kill {
  RunnerHeader header;
  std::uint32_t number;
  std::int32_t pid;  // as its ChildHello said: another one of that number stays
};
static_assert(sizeof(Kill) == 16);

enum class EndReason : std::uint32_t {
  kItself = 0,
  kKilled = 1,  // on the daemon's word
  kGrew = 2,    // beyond the pool's max_rss
};

// UTF-8 text follows: the last lines that the child wrote to stderr or stdout. Of the process that
// imports the function for the others, `number` is none of a child's.
struct ChildEnded {
  RunnerHeader header;
  std::uint32_t number;
  std::int32_t pid;
  std::int32_t status;  // of waitpid()
  EndReason reason;
  std::uint32_t text_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(ChildEnded) == 32);

// The function cannot be imported: UTF-8 text follows. The supervisor ends.
struct ImportFailed {
  RunnerHeader header;
  std::uint32_t text_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(ImportFailed) == 16);

// The pool is needed again after nobody needed it. A supervisor whose function's file is not what
// was imported ends, so that another one imports what is there now.
struct Look {
  RunnerHeader header;
};
static_assert(sizeof(Look) == 8);

// The file is what was imported: an answer to each Look.
struct Looked {
  RunnerHeader header;
};
static_assert(sizeof(Looked) == 8);

// Nobody needs the pool any more.
struct End {
  RunnerHeader header;
};
static_assert(sizeof(End) == 8);

struct RowEntry {
  std::uint64_t seed;
  std::uint64_t epoch;
  std::uint64_t position;
  std::uint64_t item;
};
static_assert(sizeof(RowEntry) == 32);

// A number's bytes are eight, a bool's one. Of an array alone `shape` means something.
struct ArgumentEntry {
  std::uint64_t offset;  // from the cell's first byte; 0: the row has none, which it need not have
  std::uint64_t bytes;
  std::int64_t shape[8];
};
static_assert(sizeof(ArgumentEntry) == 80);

enum class AnswerKind : std::uint32_t {
  kFields = 1,
  kRejected = 2,     // the function gave None
  kRaised = 3,       // or gave what it does not declare: `text` is why
  kBadSample = 4,    // likewise
  kUnavailable = 5,  // likewise
  kNoRoom = 6,       // the row was not called, or its answer of `text_bytes` bytes has no room
  kDescription = 7,  // of a dataset: `text` is it (source/python_source.h)
};

struct AnswerEntry {
  AnswerKind kind;
  std::uint32_t call;  // the call's number, modulo 2^32: else the entry is of an earlier one
  std::uint64_t text_offset;
  std::uint64_t text_bytes;
};
static_assert(sizeof(AnswerEntry) == 24);
static_assert(__builtin_offsetof(AnswerEntry, call) == 4);

struct FieldEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int64_t shape[8];
};
static_assert(sizeof(FieldEntry) == 80);

}  // namespace spdld::runner
