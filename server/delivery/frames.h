// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/users/user_bytes.h"
#include "spdld/arena.h"
#include "spdld/wire.h"

// Frames of the data socket as values: what consumers sent, checked, and what the daemon sends.
namespace spdld::delivery {

struct Hello {
  std::uint32_t protocol_min = 0;
  std::uint32_t protocol_max = 0;
  std::string client;
};

struct StreamPosition {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t step = 0;

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

// How far a rank's loop has come in a run of its job: it has been handed `turn` batches, through
// epochs, seeks and changes of the job. The turns of an abandoned branch are those of another run.
struct RunTurn {
  std::uint64_t run = 0;  // 0: not known
  std::uint32_t branch = 0;
  std::uint64_t turn = 0;

  friend bool operator==(const RunTurn&, const RunTurn&) = default;
};

// When a YAML that was sent takes the place of a pipeline of its name that differs.
enum class Replace { kNever, kUnread, kAlways };  // kUnread: if no job reads that one

struct AttachRequest {
  std::string pipeline;
  std::string job;  // empty: private to this process
  std::map<std::string, std::string> vars;
  std::string replica;
  std::string client_name;
  std::string command;  // the consumer's command line, as it says
  std::string host;     // its host's name, and its pid, as it sees them
  std::optional<std::uint32_t> host_pid;
  std::string device;                      // UUID of the GPU that it wants batches on; empty: none
  std::string pipeline_yaml;               // empty: the pipeline must be there
  std::uint32_t blob_bytes = 0;            // of the YAML, as the frame says
  std::string pipeline_file;               // absolute path of that YAML; empty: not from a file
  std::map<std::string, std::string> env;  // what ${env:NAME} in it means to the consumer
  Replace replace = Replace::kNever;
  std::optional<std::uint32_t> shard;       // none: the daemon assigns
  std::optional<std::uint32_t> num_shards;  // none: as the job has it
  std::uint32_t replicas = 1;
  std::optional<std::uint32_t> credits;  // kMinCredits..kMaxCredits
  std::optional<std::uint64_t> batch_size;
  std::optional<std::int64_t> seed;
  std::uint32_t incarnation = 0;
  bool reconnect = false;
  bool starts_runners = false;  // when it is asked to
  wire::StartMode start = wire::StartMode::kFresh;
  StreamPosition cursor;     // for kCursor
  RunTurn in_run;            // of the cursor; run 0: it is a place alone
  std::string order_digest;  // of the cursor; empty: not to be checked
  // Its part of what its user's attaches may take in memory, until they are answered.
  std::shared_ptr<const UserBytes::Share> share;
};

// The consumer's loop goes to the start of `epoch`; with a `skip`, so many steps further instead,
// at most to the end of its epoch.
struct SeekRequest {
  std::uint64_t turn = 0;  // batches of the run that the loop has been handed by then
  std::uint64_t epoch = 0;
  std::uint32_t skip = 0;
  std::uint32_t serial = 0;
};

// The consumer's caller has been handed `turn` batches of the run.
struct HandedNotice {
  std::uint64_t turn = 0;
};

struct ReleaseRequest {
  std::uint64_t lease = 0;
};

struct QueryRequest {
  wire::QueryKind kind{};
  std::uint32_t serial = 0;
  // For kUris: dataset indices, not checked against the dataset, and the order that they are of.
  std::vector<std::int64_t> items = {};
  std::string order_digest = {};
};

// What a consumer says of its loop, since its loader was opened (wire::WaitedFrame). No time and no
// count is so large that the sums of all consumers could overflow.
struct WaitedNotice {
  std::chrono::milliseconds waited{0};
  std::uint64_t waits = 0;
  std::optional<std::chrono::milliseconds> core_waited = std::nullopt;  // none: not known
  std::uint64_t steps = 0;
  std::chrono::milliseconds between{0};
  std::chrono::milliseconds mapped{0};
  std::array<std::uint64_t, wire::kWaitLengths> waits_by_length = {};

  friend bool operator==(const WaitedNotice&, const WaitedNotice&) = default;
};

// What a consumer wants its own job to go on with.
struct ApplyWish {
  std::uint32_t serial = 0;
  wire::ApplyAt at{};
  std::uint64_t epoch = 0;  // for kStep
  std::uint64_t step = 0;
  bool allow_schema_change = false;
  std::map<std::string, std::string> vars;
};

struct DetachRequest {};

// A part of a text that the consumer sends: the pipeline's YAML.
struct BlobPart {
  std::uint32_t serial = 0;
  std::uint32_t offset = 0;
  std::uint32_t total_bytes = 0;
  std::span<const std::byte> bytes;  // into the frame
};

using Request = std::variant<Hello, AttachRequest, ReleaseRequest, SeekRequest, QueryRequest,
                             ApplyWish, WaitedNotice, HandedNotice, DetachRequest, BlobPart>;

// A consumer's frame, checked; kInvalidArgument says what is wrong with it. Any bytes will do.
Result<Request> parse_request(std::span<const std::byte> frame);

// What an attach gives.
struct AttachReply {
  std::uint64_t session = 0;
  std::uint64_t items = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t batch_size = 0;
  std::int64_t seed = 0;
  std::uint32_t shard = 0;
  std::uint32_t num_shards = 1;
  std::uint32_t replicas = 1;
  std::uint32_t credits = 0;
  StreamPosition start = {};
  RunTurn in_run = {};       // of `start`; its run is never 0
  std::uint64_t epochs = 0;  // 0: no end
  std::uint32_t pipeline_version = 0;
  std::string order_digest = {};
  std::string pipeline = {};
  std::string job = {};
  std::vector<std::string> warnings = {};  // of the pipeline; the first few are sent
  std::string device = {};                 // UUID of the GPU that batches lie on; empty: none
};

// What the batches from here on are made by.
struct VersionNotice {
  std::uint64_t items = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t batch_size = 0;
  std::uint32_t pipeline_version = 0;
  std::uint32_t credits = 0;
  std::string order_digest = {};
};

// From which step on a job runs what was applied to it.
struct AppliedNotice {
  std::uint32_t version = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool tuned = false;  // only how it is run has changed, from now on
};

// Where the stream goes on after the consumer's own seek, and what a change of the job makes anew.
struct ResetNotice {
  StreamPosition to = {};  // read by the consumer in the answer to its seek alone
  std::uint64_t steps_per_epoch = 0;
  std::uint32_t seek = 0;
  std::uint32_t shard = 0;
  std::uint32_t num_shards = 1;
};

struct BatchNotice {
  std::uint64_t lease = 0;
  std::uint32_t arena_id = 0;
  std::uint32_t schema_id = 0;
  std::uint64_t slot_offset = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t next_position = 0;
  std::uint64_t turn = 0;  // batches of the run that the loop was handed before it
  std::uint32_t rows = 0;
  std::uint32_t seek = 0;
  std::uint32_t branch = 0;
  bool tell = false;  // answered by a HandedNotice
};

// Bytes of a frame to be sent. Texts that are too long are cut.
using Frame = std::vector<std::byte>;
Frame welcome_frame(std::span<const std::uint8_t, 16> generation, const std::string& server);
Frame error_frame(const Status& status, bool fatal);
Frame progress_frame(std::uint64_t done, std::uint64_t total, const std::string& text);
Frame standstill_frame(const std::string& text);
Frame notice_frame(const std::string& text);
Frame runners_wanted_frame(const std::string& pool);
Frame attached_frame(const AttachReply& reply);
Frame version_frame(const VersionNotice& notice);
Frame schema_frame(std::uint32_t schema_id, std::uint32_t pipeline_version,
                   std::span<const wire::FieldLayout> fields);
Frame applied_frame(std::uint32_t serial, const AppliedNotice& notice);
Frame refused_frame(std::uint32_t serial, const Status& why);
Frame bye_frame(wire::ByeReason reason, const std::string& text);
wire::BatchFrame batch_frame(const BatchNotice& notice);

}  // namespace spdld::delivery
