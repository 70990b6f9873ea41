// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Frames of the data socket: one frame is one SOCK_SEQPACKET message, little-endian, fixed-width.
// Every frame starts with FrameHeader; what follows the fixed part is named by the comment at the
// frame. Reserved bytes are zero when sent and ignored when received. docs/data-plane.md tells the
// conversation; payload never travels here.
//
//   consumer                                daemon
//   Hello            ->
//                    <-                     Welcome | Error
//   Attach (+ Blob…) ->
//                    <-                     Progress …, Attached | Error
//                    <-                     ArenaOpen (+ fd), Schema, Batch …, EpochEnd …
//   Release, Handed, Seek, Query, Apply, Waited, Detach ->
//                    <-                     Batch …, Reset, Blob …, Applied, Refused, Notice, Bye
//                    <-                     ArenaOpen (+ fd), Version, Schema, ArenaRetire, Batch …
//                    <-                     RunnersWanted
//
// Batches that lie on a GPU:
//                    <-                     ArenaOpen (+ fd), DeviceArena (+ fd), Schema,
//                                           DeviceBatch …
//
// Each change of a frame raises kProtocol. Hello and Welcome carry ranges for later versions; until
// 0.2 both ends of the range are kProtocol, and each side refuses a build that tells any other
// range.
namespace spdld::wire {

inline constexpr std::uint32_t kWireMagic = 0x4c445053;  // "SPDL"
inline constexpr std::uint32_t kProtocol = 5;
inline constexpr std::uint32_t kMaxFrameBytes = 32768;
inline constexpr std::uint32_t kMaxBlobBytes = 16u << 20;
inline constexpr std::uint32_t kMaxYamlBytes = 1u << 20;  // of a pipeline, that a consumer sends
inline constexpr std::uint32_t kMaxUris = 2048;           // of one query
inline constexpr std::uint32_t kMinCredits = 2;
inline constexpr std::uint32_t kMaxCredits = 64;
inline constexpr std::uint32_t kMaxReplicas = 64;  // of a shard

enum class FrameType : std::uint32_t {
  // consumer -> daemon
  kHello = 1,
  kAttach = 2,
  kRelease = 3,
  kSeek = 4,
  kQuery = 5,
  kDetach = 6,
  kApply = 7,
  kWaited = 8,
  kHanded = 9,
  // daemon -> consumer
  kWelcome = 64,
  kError = 65,
  kProgress = 66,
  kAttached = 67,
  kArenaOpen = 68,
  kArenaRetire = 69,
  kSchema = 70,
  kBatch = 71,
  kEpochEnd = 72,
  kReset = 73,
  kBye = 74,
  kVersion = 75,
  kStandstill = 76,
  kNotice = 77,
  kDeviceArena = 78,
  kDeviceBatch = 79,
  kApplied = 80,
  kRefused = 81,
  kRunnersWanted = 82,
  // either way
  kBlob = 128,
};

struct FrameHeader {
  FrameType type;
  std::uint32_t bytes;  // of the whole frame, this header included
};
static_assert(sizeof(FrameHeader) == 8);

// First on every connection. Fixed for all versions to come.
struct HelloFrame {
  FrameHeader header;
  std::uint32_t magic;
  std::uint32_t protocol_min;
  std::uint32_t protocol_max;
  std::uint32_t reserved;
  char client[48];  // name and version of the client, for messages: "spdld-python 0.1.0"
};
static_assert(sizeof(HelloFrame) == 72);

struct WelcomeFrame {
  FrameHeader header;
  std::uint32_t magic;
  std::uint32_t protocol;      // the one that both will speak
  std::uint32_t protocol_min;  // the range of the daemon
  std::uint32_t protocol_max;
  std::uint8_t generation[16];  // of the daemon's process: another one after a restart
  char server[48];
};
static_assert(sizeof(WelcomeFrame) == 88);

// An error ends the connection unless `fatal` is 0. Codes are gRPC's (server/base/status.h).
struct ErrorFrame {
  FrameHeader header;
  std::uint32_t code;
  std::uint32_t fatal;
  std::uint32_t text_bytes;  // UTF-8 text follows
  std::uint32_t reserved;
};
static_assert(sizeof(ErrorFrame) == 24);

enum class StartMode : std::uint32_t {
  kFresh = 0,   // epoch 0, step 0
  kCursor = 1,  // at AttachFrame's cursor
  kLedger = 2,  // at the daemon's own record
};

// Texts follow as {TextKey, bytes, UTF-8}, each padded to 4 bytes. A text that does not fit into
// the frame (a pipeline's YAML) is sent before it by Blob frames of kind kPipelineYaml.
enum class TextKey : std::uint32_t {
  kPipeline = 1,
  kJob = 2,  // empty: private to this process
  kVar = 3,  // "key=value", repeated
  kReplica = 4,
  kOrderDigest = 5,   // of the cursor
  kClientName = 6,    // shown by `spdlctl get sessions`
  kPipelineFile = 7,  // absolute path of the YAML that was sent: relative paths start there
  kEnv = 8,           // "NAME=value", repeated: what ${env:NAME} in the YAML means to its sender
  kReplace = 9,       // kReplaceAlways or kReplaceUnread; absent: never
  kCommand = 10,      // the consumer's command line, shown by `spdlctl get sessions`
  kHost = 11,         // the name of its host, as it sees it: a container's or pod's
  kPid = 12,          // its own pid, as it sees it; decimal
  kWarning = 13,      // daemon: of the pipeline, repeated; nothing failed
  // The GPU that batches are to lie on, by its UUID as nvidia-smi prints it ("GPU-…", "MIG-…").
  // From the daemon: batches lie there from the start; a later version may bring them otherwise.
  kDevice = 14,
};

// When the YAML that was sent takes the place of a pipeline of its name that differs.
inline constexpr char kReplaceAlways[] = "always";
inline constexpr char kReplaceUnread[] = "unread";  // if no job reads that one

struct TextHeader {
  TextKey key;
  std::uint32_t bytes;
};
static_assert(sizeof(TextHeader) == 8);

struct AttachFrame {
  FrameHeader header;
  std::int32_t shard;       // -1: the daemon assigns (jobs made over gRPC)
  std::int32_t num_shards;  // -1: as the job has it
  std::int32_t replicas;
  std::uint32_t credits;    // 0: as the pipeline says
  std::int64_t batch_size;  // -1: as the pipeline says
  std::int64_t seed;        // valid if has_seed
  std::uint32_t has_seed;
  std::uint32_t incarnation;  // restart count of the launcher; a newer one evicts older ones
  StartMode start;
  std::uint32_t reconnect;  // 1: the same consumer after a lost connection
  std::uint64_t epoch;      // cursor, for kCursor:
  std::uint64_t position;   //   first position of `step`, over all shards
  std::uint64_t step;
  std::uint64_t run;     //   whose batches `turn` counts; 0: the cursor is a place alone
  std::uint64_t turn;    //   how many batches of the run the consumer's loop has been handed
  std::uint32_t branch;  //   of the run, as told with the last of them
  std::uint32_t starts_runners;  // 1: when RunnersWanted asks for it
  std::uint32_t text_count;
  std::uint32_t blob_bytes;  // of the YAML that was sent before; 0: none
};
static_assert(sizeof(AttachFrame) == 112);

// Something is going on that takes time; counts as a sign of life. As a Standstill it is none: the
// text says what does not come on.
struct ProgressFrame {
  FrameHeader header;
  std::uint64_t done;
  std::uint64_t total;  // 0: unknown
  std::uint32_t text_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(ProgressFrame) == 32);

struct AttachedFrame {
  FrameHeader header;
  std::uint64_t session;
  std::uint64_t items;            // N of the dataset
  std::uint64_t steps_per_epoch;  // of a whole epoch
  std::uint64_t batch_size;
  std::int64_t seed;
  std::int32_t shard;
  std::int32_t num_shards;
  std::int32_t replicas;
  std::uint32_t credits;
  std::uint64_t epoch;  // where the stream starts: the place, and the turn in the job's run
  std::uint64_t step;
  std::uint64_t position;
  std::uint64_t run;  // never 0
  std::uint64_t turn;
  std::uint32_t branch;
  std::uint32_t reserved;
  std::uint64_t epochs;  // the job's epochs; 0: no end
  std::uint32_t pipeline_version;
  std::uint32_t text_count;  // kOrderDigest, kPipeline, kJob, kWarning, kDevice as texts
};
static_assert(sizeof(AttachedFrame) == 128);

// Carries one fd (SCM_RIGHTS).
struct ArenaOpenFrame {
  FrameHeader header;
  std::uint32_t arena_id;
  std::uint32_t kind;  // ArenaKind
  std::uint64_t total_bytes;
  std::uint8_t generation[16];
};
static_assert(sizeof(ArenaOpenFrame) == 40);

enum class ArenaKind : std::uint32_t { kMemfd = 1, kPosix = 2, kHugetlb = 3 };

// How memory of a GPU is shared. kVmm: physical memory of cuMemCreate, as a POSIX file descriptor.
enum class DeviceMemoryKind : std::uint32_t { kVmm = 1 };

// Memory of a GPU that belongs to an arena that was opened before: a batch in a slot of that arena
// has the values of some fields here (kFieldOnDevice). Carries one fd (SCM_RIGHTS), and goes when
// the arena does.
struct DeviceArenaFrame {
  FrameHeader header;
  std::uint32_t arena_id;
  DeviceMemoryKind kind;
  std::uint64_t total_bytes;
};
static_assert(sizeof(DeviceArenaFrame) == 24);

// No further batch comes from this arena. The consumer unmaps it when its last lease ends.
struct ArenaRetireFrame {
  FrameHeader header;
  std::uint32_t arena_id;
  std::uint32_t reserved;
};
static_assert(sizeof(ArenaRetireFrame) == 16);

// Comes before the first batch that uses it. FieldLayout[field_count] follow (arena.h).
struct SchemaFrame {
  FrameHeader header;
  std::uint32_t schema_id;
  std::uint32_t pipeline_version;
  std::uint32_t field_count;
  std::uint32_t reserved;
};
static_assert(sizeof(SchemaFrame) == 24);

// Batches from here on are made by another version of the pipeline, or another variant of it, or
// the consumer may hold more or fewer of them: what Attached said is said anew. Comes before that
// version's Schema.
struct VersionFrame {
  FrameHeader header;
  std::uint64_t items;
  std::uint64_t steps_per_epoch;
  std::uint64_t batch_size;
  std::uint32_t pipeline_version;
  std::uint32_t text_count;  // kOrderDigest follows as a text
  std::uint32_t credits;
  std::uint32_t reserved;
};
static_assert(sizeof(VersionFrame) == 48);

struct BatchFrame {
  FrameHeader header;
  std::uint64_t lease;  // opaque to the consumer: it goes back in Release
  std::uint32_t arena_id;
  std::uint32_t schema_id;
  std::uint64_t slot_offset;  // of the slot, from the arena's first byte
  std::uint64_t slot_bytes;
  std::uint64_t epoch;
  std::uint64_t step;
  std::uint64_t next_position;  // of the cursor after this batch
  std::uint64_t turn;           // so many batches of the run the loop was handed before this one
  std::uint32_t rows;
  std::uint32_t seek;    // serial of the seek this batch answers; older ones are released unseen
  std::uint32_t branch;  // of the run; a cursor after this batch names it
  std::uint32_t tell;    // 1: the consumer sends Handed when its caller is handed this batch
};
static_assert(sizeof(BatchFrame) == 88);

// A batch whose fields lie in two places: in a slot of the arena in main memory, and in the GPU's
// memory that belongs to it. The values are complete there.
struct DeviceBatchFrame {
  BatchFrame batch;             // its header is this frame's
  std::uint64_t device_offset;  // of what is the batch's there, from that memory's first byte
  std::uint64_t device_bytes;
};
static_assert(sizeof(DeviceBatchFrame) == 104);

struct EpochEndFrame {
  FrameHeader header;
  std::uint64_t epoch;
  std::uint64_t steps;
  std::uint32_t seek;
  std::uint32_t last;  // 1: the job has no further epoch
};
static_assert(sizeof(EpochEndFrame) == 32);

struct ReleaseFrame {
  FrameHeader header;
  std::uint64_t lease;
};
static_assert(sizeof(ReleaseFrame) == 16);

// The consumer's caller has been handed `turn` batches of the run. Sent for a batch that asks for
// it (BatchFrame::tell): `turn` is that batch's, and 1 more.
struct HandedFrame {
  FrameHeader header;
  std::uint64_t turn;
};
static_assert(sizeof(HandedFrame) == 16);

// The consumer's loop has been handed `turn` batches of the run, and goes to the start of `epoch`.
// With a `skip` it goes that many steps further instead, at most to the end of `epoch`, the one
// that it is in: behind the epoch's last batch it may not have been told the end. Answered by a
// Reset of the same serial, which tells the place.
struct SeekFrame {
  FrameHeader header;
  std::uint64_t turn;
  std::uint64_t epoch;
  std::uint32_t seek;  // serial, counted by the consumer from 1
  std::uint32_t skip;  // 0: to the epoch's start
};
static_assert(sizeof(SeekFrame) == 32);

// What follows belongs to seek `seek` (0: to none). As the answer to the consumer's last seek it
// tells the place where the stream goes on. The daemon sends one unasked, too, when the job is
// changed (resized, say): then steps_per_epoch, shard and num_shards alone are told anew, and the
// consumer's cursor stays as it is until its next batch. A cursor that had the change in it already
// would go through the change once more at the next attach.
struct ResetFrame {
  FrameHeader header;
  std::uint64_t epoch;
  std::uint64_t position;
  std::uint64_t step;
  std::uint64_t steps_per_epoch;
  std::uint32_t seek;
  std::int32_t shard;
  std::int32_t num_shards;
  std::uint32_t reserved;
};
static_assert(sizeof(ResetFrame) == 56);

enum class QueryKind : std::uint32_t { kClasses = 1, kStats = 2, kUris = 3 };

// Answered by Blob frames with the same serial, or by Refused. A UrisPart follows in a query of
// kind kUris.
struct QueryFrame {
  FrameHeader header;
  QueryKind kind;
  std::uint32_t serial;
};
static_assert(sizeof(QueryFrame) == 16);

// What items of the job's dataset are called. `count` dataset indices (int64) follow, then the
// order digest that was told with the batch that they are of.
struct UrisPart {
  std::uint32_t count;  // 1..kMaxUris
  std::uint32_t digest_bytes;
};
static_assert(sizeof(UrisPart) == 8);

// Waits are told by their length: so many of at most the first bound, so many of at most the second
// and more than the first, and at last those that were longer than all.
inline constexpr std::uint64_t kWaitBoundsMs[] = {1, 10, 100, 1'000, 10'000};
inline constexpr std::uint32_t kWaitLengths = sizeof kWaitBoundsMs / sizeof kWaitBoundsMs[0] + 1;

// How the consumer's loop has fared since its loader was opened. Told about once a second, while it
// asks for batches. Where threads ask ahead of the loop (`map=`), they are meant.
struct WaitedFrame {
  FrameHeader header;
  std::uint64_t waited_ms;  // for batches, the wait that is going on included
  std::uint64_t waits;      // times that no batch was ready when one was wanted
  // The thread that asks was ready to run so long, and had no core; kNotKnown: the kernel does not
  // tell.
  std::uint64_t core_waited_ms;
  std::uint64_t steps;       // batches that it was given
  std::uint64_t between_ms;  // from a batch that it was given until it asked for the next
  std::uint64_t map_ms;      // for which functions of `map=` ran, in all threads together
  std::uint64_t waits_by_length[kWaitLengths];  // of those that are over
};
static_assert(sizeof(WaitedFrame) == 104);
inline constexpr std::uint64_t kNotKnown = ~std::uint64_t{0};

// At which step a job changes to what is applied.
enum class ApplyAt : std::uint32_t {
  kNow = 1,        // the first step that no shard has begun
  kNextEpoch = 2,  // the first epoch that no shard has begun
  kStep = 3,       // ApplyFrame's
};

// The consumer's own job goes on with other variables. All ranks may say the same: it is done once.
// Texts follow: kVar, repeated. Answered by Applied or Refused with the same serial.
struct ApplyFrame {
  FrameHeader header;
  std::uint32_t serial;
  ApplyAt at;
  std::uint64_t epoch;
  std::uint64_t step;
  std::uint32_t allow_schema_change;
  std::uint32_t text_count;
};
static_assert(sizeof(ApplyFrame) == 40);

// The consumer is to start a process that calls a function of its user's on rows
// (spdld/runner.h), as nobody does: of what it is told, `pool` says which. Sent only to those that
// said they would.
struct RunnersWantedFrame {
  FrameHeader header;
  char pool[32];
};
static_assert(sizeof(RunnersWantedFrame) == 40);

// The job runs `version` of its pipeline from this step on.
struct AppliedFrame {
  FrameHeader header;
  std::uint32_t serial;  // of the Apply
  std::uint32_t version;
  std::uint64_t epoch;
  std::uint64_t step;
  std::uint32_t tuned;  // 1: only how the pipeline is run has changed, from now on
  std::uint32_t reserved;
};
static_assert(sizeof(AppliedFrame) == 40);

// Says why an Apply or a Query is not done, and what to do. The connection goes on. Codes are as in
// ErrorFrame.
struct RefusedFrame {
  FrameHeader header;
  std::uint32_t serial;
  std::uint32_t code;
  std::uint32_t text_bytes;  // UTF-8 text follows
  std::uint32_t reserved;
};
static_assert(sizeof(RefusedFrame) == 24);

enum class BlobKind : std::uint32_t {
  kPipelineYaml = 1,  // consumer: the pipeline's text, for the Attach that follows
  kClasses = 2,       // daemon: class names, NUL-separated, in index order
  kStats = 3,         // daemon: JSON
  kUris = 4,          // daemon: uris, each followed by a NUL, in the order of the query's indices
};

// Part of a text longer than a frame; chunk bytes follow. The parts come in order.
struct BlobFrame {
  FrameHeader header;
  BlobKind kind;
  std::uint32_t serial;
  std::uint32_t offset;
  std::uint32_t total_bytes;
};
static_assert(sizeof(BlobFrame) == 24);

struct DetachFrame {
  FrameHeader header;
};
static_assert(sizeof(DetachFrame) == 8);

// What the consumer's user should know though nothing failed, and what was not known yet at
// Attached. UTF-8 text follows.
struct NoticeFrame {
  FrameHeader header;
  std::uint32_t text_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(NoticeFrame) == 16);

enum class ByeReason : std::uint32_t {
  kShutdown = 1,  // the daemon stops or restarts: reconnect
  kEvicted = 2,   // by an operator or a newer incarnation: do not reconnect
  kJobDeleted = 3,
  kResized = 4,  // the job has no such shard any more
};

// The daemon closes this connection; text follows.
struct ByeFrame {
  FrameHeader header;
  ByeReason reason;
  std::uint32_t text_bytes;
};
static_assert(sizeof(ByeFrame) == 16);

}  // namespace spdld::wire
