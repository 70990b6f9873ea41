// SPDX-License-Identifier: Apache-2.0
#include "delivery/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text/utf8.h"

namespace spdld::delivery {
namespace {

using wire::FrameType;

constexpr std::uint32_t kMaxTexts = 256;
constexpr std::size_t kMaxMessageBytes = 8192;
// What an Attached frame has room for beside its other texts.
constexpr std::uint32_t kMaxWarnings = 4;
constexpr std::size_t kMaxWarningBytes = 1024;

Status bad(std::string_view frame, std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("{} frame: {}", frame, what));
}

// The fixed part of a frame; newer versions may append to it.
template <typename T>
Result<T> fixed_part(std::span<const std::byte> frame, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (frame.size() < sizeof(T)) {
    return tl::unexpected(
        bad(name, fmt::format("{} bytes, and it takes {}", frame.size(), sizeof(T))));
  }
  T out;
  std::memcpy(&out, frame.data(), sizeof(T));
  return out;
}

// Made in place: to gcc 12 a variant that is moved looks uninitialised.
template <typename T>
Result<Request> accepted(T request) {
  return Result<Request>(tl::in_place, std::move(request));
}

// A fixed-size text field, up to its NUL.
template <std::size_t N>
std::string short_text(const char (&text)[N]) {
  return std::string(text, ::strnlen(text, N));
}

// Texts of the frame that `frame` names.
struct TextTaker {
  std::string_view frame;

  Status take(std::string& out, std::string_view text, std::string_view what) const {
    if (text.find('\0') != std::string_view::npos) {
      return bad(frame, fmt::format("{} has a NUL in it", what));
    }
    out = text;
    return {};
  }

  Status take(std::map<std::string, std::string>& out, std::string_view text,
              std::string_view what) const {
    std::string pair;
    SPDLD_TRY(take(pair, text, what));
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return bad(frame, fmt::format("{} '{}' is not NAME=VALUE", what, pair));
    }
    out[pair.substr(0, equals)] = pair.substr(equals + 1);
    return {};
  }
};

Status take_count(std::optional<std::uint32_t>& out, std::string_view text, std::string_view what) {
  std::uint32_t count = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return bad("Attach", fmt::format("{} is '{}'", what, text));
  }
  out = count;
  return {};
}

Status take_text(AttachRequest& request, wire::TextKey key, std::string_view text) {
  const TextTaker attach{"Attach"};
  switch (key) {
    case wire::TextKey::kPipeline:
      return attach.take(request.pipeline, text, "the pipeline's name");
    case wire::TextKey::kJob: return attach.take(request.job, text, "the job's name");
    case wire::TextKey::kReplica: return attach.take(request.replica, text, "the replica's number");
    case wire::TextKey::kOrderDigest:
      return attach.take(request.order_digest, text, "the order digest");
    case wire::TextKey::kClientName:
      return attach.take(request.client_name, text, "the client's name");
    case wire::TextKey::kPipelineFile:
      return attach.take(request.pipeline_file, text, "the pipeline's file");
    case wire::TextKey::kVar: return attach.take(request.vars, text, "the variable");
    case wire::TextKey::kEnv: return attach.take(request.env, text, "the environment's");
    case wire::TextKey::kCommand: return attach.take(request.command, text, "the command");
    case wire::TextKey::kHost: return attach.take(request.host, text, "the host's name");
    case wire::TextKey::kPid: return take_count(request.host_pid, text, "the pid");
    case wire::TextKey::kWarning: return {};  // the daemon's
    case wire::TextKey::kDevice: return attach.take(request.device, text, "the GPU's UUID");
    case wire::TextKey::kReplace:
      if (text == wire::kReplaceAlways) request.replace = Replace::kAlways;
      if (text == wire::kReplaceUnread) request.replace = Replace::kUnread;
      return {};
  }
  return {};  // of a newer client; what it means is none of ours
}

Status take_text(ApplyWish& wish, wire::TextKey key, std::string_view text) {
  if (key != wire::TextKey::kVar) return {};
  return TextTaker{"Apply"}.take(wish.vars, text, "the variable");
}

template <typename T>
Status take_texts(T& request, std::string_view name, std::span<const std::byte> rest,
                  std::uint32_t count) {
  if (count > kMaxTexts) return bad(name, fmt::format("{} texts", count));
  for (std::uint32_t i = 0; i < count; ++i) {
    wire::TextHeader header;
    if (rest.size() < sizeof header) return bad(name, "ends inside its texts");
    std::memcpy(&header, rest.data(), sizeof header);
    rest = rest.subspan(sizeof header);
    if (header.bytes > rest.size()) return bad(name, "ends inside a text");
    SPDLD_TRY(
        take_text(request, header.key, {reinterpret_cast<const char*>(rest.data()), header.bytes}));
    const std::size_t padded = (static_cast<std::size_t>(header.bytes) + 3) / 4 * 4;
    rest = rest.subspan(std::min(padded, rest.size()));
  }
  return {};
}

// -1 stands for "not given".
template <typename T>
Status take_optional(std::optional<T>& out, std::int64_t value, std::string_view name) {
  if (value < -1) return bad("Attach", fmt::format("{} is {}", name, value));
  if (value >= 0) out = static_cast<T>(value);
  return {};
}

Result<Request> parse_attach(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::AttachFrame>(bytes, "Attach"));
  AttachRequest request;
  SPDLD_TRY(take_optional(request.shard, frame.shard, "shard"));
  SPDLD_TRY(take_optional(request.num_shards, frame.num_shards, "num_shards"));
  SPDLD_TRY(take_optional(request.batch_size, frame.batch_size, "batch_size"));
  if (request.num_shards == 0u) return tl::unexpected(bad("Attach", "num_shards is 0"));
  if (request.batch_size == 0u) return tl::unexpected(bad("Attach", "batch_size is 0"));
  // Who comes back may have read up to where a resize has left its shard out: that is for the job
  // to say.
  const bool reconnect = frame.reconnect != 0;
  if (!reconnect && request.shard && request.num_shards && *request.shard >= *request.num_shards) {
    return tl::unexpected(
        bad("Attach", fmt::format("shard {} of {}", *request.shard, *request.num_shards)));
  }
  if (frame.replicas < 1 || frame.replicas > static_cast<std::int32_t>(wire::kMaxReplicas)) {
    return tl::unexpected(bad("Attach", fmt::format("replicas is {}; it is 1 to {}", frame.replicas,
                                                    wire::kMaxReplicas)));
  }
  request.replicas = static_cast<std::uint32_t>(frame.replicas);
  if (frame.credits != 0) {
    if (frame.credits < wire::kMinCredits || frame.credits > wire::kMaxCredits) {
      return tl::unexpected(
          bad("Attach", fmt::format("prefetch is {}; it is {} to {}", frame.credits,
                                    wire::kMinCredits, wire::kMaxCredits)));
    }
    request.credits = frame.credits;
  }
  if (frame.has_seed != 0) request.seed = frame.seed;
  request.blob_bytes = frame.blob_bytes;
  request.incarnation = frame.incarnation;
  request.reconnect = reconnect;
  request.starts_runners = frame.starts_runners != 0;
  if (frame.start != wire::StartMode::kFresh && frame.start != wire::StartMode::kCursor &&
      frame.start != wire::StartMode::kLedger) {
    return tl::unexpected(
        bad("Attach", fmt::format("start mode {}", static_cast<std::uint32_t>(frame.start))));
  }
  request.start = frame.start;
  request.cursor = {.epoch = frame.epoch, .position = frame.position, .step = frame.step};
  if (frame.run == 0 && (frame.turn != 0 || frame.branch != 0)) {
    return tl::unexpected(bad(
        "Attach", fmt::format("turn {} of branch {}, and of no run", frame.turn, frame.branch)));
  }
  request.in_run = {.run = frame.run, .branch = frame.branch, .turn = frame.turn};
  SPDLD_TRY(take_texts(request, "Attach", bytes.subspan(sizeof frame), frame.text_count));
  if (request.pipeline.empty()) return tl::unexpected(bad("Attach", "names no pipeline"));
  return accepted(std::move(request));
}

Result<Request> parse_query(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::QueryFrame>(bytes, "Query"));
  QueryRequest request{.kind = frame.kind, .serial = frame.serial};
  switch (frame.kind) {
    case wire::QueryKind::kClasses:
    case wire::QueryKind::kStats: return accepted(std::move(request));
    case wire::QueryKind::kUris: break;
    default:
      return tl::unexpected(
          bad("Query", fmt::format("kind {}", static_cast<std::uint32_t>(frame.kind))));
  }
  auto rest = bytes.subspan(sizeof frame);
  SPDLD_ASSIGN(const auto part, fixed_part<wire::UrisPart>(rest, "Query"));
  rest = rest.subspan(sizeof part);
  if (part.count == 0 || part.count > wire::kMaxUris) {
    return tl::unexpected(bad(
        "Query", fmt::format("asks for {} uris; 1 to {} are allowed", part.count, wire::kMaxUris)));
  }
  const std::size_t items_bytes = part.count * sizeof(std::int64_t);
  if (rest.size() < items_bytes || rest.size() - items_bytes < part.digest_bytes)
    return tl::unexpected(bad("Query", "ends inside its indices"));
  request.items.resize(part.count);
  std::memcpy(request.items.data(), rest.data(), items_bytes);
  request.order_digest.assign(reinterpret_cast<const char*>(rest.data()) + items_bytes,
                              part.digest_bytes);
  return accepted(std::move(request));
}

Result<Request> parse_apply(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::ApplyFrame>(bytes, "Apply"));
  if (frame.at != wire::ApplyAt::kNow && frame.at != wire::ApplyAt::kNextEpoch &&
      frame.at != wire::ApplyAt::kStep) {
    return tl::unexpected(bad(
        "Apply", fmt::format("at {}, which is no point", static_cast<std::uint32_t>(frame.at))));
  }
  ApplyWish wish{.serial = frame.serial,
                 .at = frame.at,
                 .epoch = frame.epoch,
                 .step = frame.step,
                 .allow_schema_change = frame.allow_schema_change != 0,
                 .vars = {}};
  SPDLD_TRY(take_texts(wish, "Apply", bytes.subspan(sizeof frame), frame.text_count));
  return accepted(std::move(wish));
}

Result<Request> parse_blob(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::BlobFrame>(bytes, "Blob"));
  if (frame.kind != wire::BlobKind::kPipelineYaml) {
    return tl::unexpected(
        bad("Blob", fmt::format("kind {} is not a consumer's", static_cast<int>(frame.kind))));
  }
  if (frame.total_bytes > wire::kMaxYamlBytes) {
    return tl::unexpected(bad("Blob", fmt::format("a pipeline of {} bytes; {} are allowed",
                                                  frame.total_bytes, wire::kMaxYamlBytes)));
  }
  const auto part = bytes.subspan(sizeof frame);
  if (frame.offset > frame.total_bytes || part.size() > frame.total_bytes - frame.offset ||
      part.empty()) {
    return tl::unexpected(bad("Blob", "a part that is not inside its text"));
  }
  return accepted(BlobPart{.serial = frame.serial,
                           .offset = frame.offset,
                           .total_bytes = frame.total_bytes,
                           .bytes = part});
}

Result<Request> parse_hello(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::HelloFrame>(bytes, "Hello"));
  if (frame.magic != wire::kWireMagic) {
    return tl::unexpected(bad("Hello", fmt::format("magic {:#x}; this is no spdld client, or one "
                                                   "of another byte order",
                                                   frame.magic)));
  }
  if (frame.protocol_min > frame.protocol_max) {
    return tl::unexpected(bad(
        "Hello", fmt::format("speaks protocols {} to {}", frame.protocol_min, frame.protocol_max)));
  }
  Hello hello{.protocol_min = frame.protocol_min,
              .protocol_max = frame.protocol_max,
              .client = short_text(frame.client)};
  return accepted(std::move(hello));
}

Result<Request> parse_waited(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto frame, fixed_part<wire::WaitedFrame>(bytes, "Waited"));
  // No run takes so long, or so many steps.
  static constexpr std::uint64_t kMostMs = 1000ull << 31;
  static constexpr std::uint64_t kMostCounted = 1ull << 48;
  const auto time = [](std::uint64_t ms) {
    return std::chrono::milliseconds(std::min(ms, kMostMs));
  };
  const auto count = [](std::uint64_t of) { return std::min(of, kMostCounted); };
  WaitedNotice notice{.waited = time(frame.waited_ms),
                      .waits = count(frame.waits),
                      .steps = count(frame.steps),
                      .between = time(frame.between_ms),
                      .mapped = time(frame.map_ms)};
  if (frame.core_waited_ms != wire::kNotKnown) notice.core_waited = time(frame.core_waited_ms);
  std::transform(std::begin(frame.waits_by_length), std::end(frame.waits_by_length),
                 notice.waits_by_length.begin(), count);
  return accepted(notice);
}

void append(Frame& frame, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  frame.insert(frame.end(), at, at + bytes);
}

// The frame with its header filled in, and what follows the fixed part.
template <typename T>
Frame finish(T fixed, FrameType type, const void* tail = nullptr, std::size_t tail_bytes = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  fixed.header = {type, static_cast<std::uint32_t>(sizeof(T) + tail_bytes)};
  Frame frame;
  frame.reserve(sizeof(T) + tail_bytes);
  append(frame, &fixed, sizeof fixed);
  append(frame, tail, tail_bytes);
  return frame;
}

void append_text(Frame& tail, wire::TextKey key, std::string_view text) {
  text = cut(text, kMaxMessageBytes);
  const wire::TextHeader header{key, static_cast<std::uint32_t>(text.size())};
  append(tail, &header, sizeof header);
  append(tail, text.data(), text.size());
  tail.resize((tail.size() + 3) / 4 * 4);
}

}  // namespace

Result<Request> parse_request(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const auto header, fixed_part<wire::FrameHeader>(bytes, "any"));
  if (header.bytes != bytes.size()) {
    return tl::unexpected(bad(
        "any", fmt::format("says that it has {} bytes, and has {}", header.bytes, bytes.size())));
  }
  switch (header.type) {
    case FrameType::kHello: return parse_hello(bytes);
    case FrameType::kAttach: return parse_attach(bytes);
    case FrameType::kBlob: return parse_blob(bytes);
    case FrameType::kRelease: {
      SPDLD_ASSIGN(const auto frame, fixed_part<wire::ReleaseFrame>(bytes, "Release"));
      return accepted(ReleaseRequest{frame.lease});
    }
    case FrameType::kSeek: {
      SPDLD_ASSIGN(const auto frame, fixed_part<wire::SeekFrame>(bytes, "Seek"));
      return accepted(SeekRequest{
          .turn = frame.turn, .epoch = frame.epoch, .skip = frame.skip, .serial = frame.seek});
    }
    case FrameType::kHanded: {
      SPDLD_ASSIGN(const auto frame, fixed_part<wire::HandedFrame>(bytes, "Handed"));
      return accepted(HandedNotice{frame.turn});
    }
    case FrameType::kQuery: return parse_query(bytes);
    case FrameType::kWaited: return parse_waited(bytes);
    case FrameType::kApply: return parse_apply(bytes);
    case FrameType::kDetach: return accepted(DetachRequest{});
    default:
      return tl::unexpected(
          bad("unknown", fmt::format("type {}", static_cast<std::uint32_t>(header.type))));
  }
}

Frame welcome_frame(std::span<const std::uint8_t, 16> generation, const std::string& server) {
  wire::WelcomeFrame frame{};
  frame.magic = wire::kWireMagic;
  frame.protocol = frame.protocol_min = frame.protocol_max = wire::kProtocol;
  std::copy(generation.begin(), generation.end(), frame.generation);
  const std::string_view name = cut(server, sizeof frame.server - 1);
  std::copy(name.begin(), name.end(), frame.server);
  return finish(frame, FrameType::kWelcome);
}

Frame error_frame(const Status& status, bool fatal) {
  const std::string_view text = cut(status.message(), kMaxMessageBytes);
  wire::ErrorFrame frame{};
  frame.code = static_cast<std::uint32_t>(status.code());
  frame.fatal = fatal ? 1 : 0;
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kError, text.data(), text.size());
}

Frame applied_frame(std::uint32_t serial, const AppliedNotice& notice) {
  wire::AppliedFrame frame{};
  frame.serial = serial;
  frame.version = notice.version;
  frame.epoch = notice.epoch;
  frame.step = notice.step;
  frame.tuned = notice.tuned ? 1 : 0;
  return finish(frame, FrameType::kApplied);
}

Frame refused_frame(std::uint32_t serial, const Status& why) {
  const std::string_view text = cut(why.message(), kMaxMessageBytes);
  wire::RefusedFrame frame{};
  frame.serial = serial;
  frame.code = static_cast<std::uint32_t>(why.code());
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kRefused, text.data(), text.size());
}

Frame progress_frame(std::uint64_t done, std::uint64_t total, const std::string& full_text) {
  const std::string_view text = cut(full_text, kMaxMessageBytes);
  wire::ProgressFrame frame{};
  frame.done = done;
  frame.total = total;
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kProgress, text.data(), text.size());
}

Frame standstill_frame(const std::string& full_text) {
  const std::string_view text = cut(full_text, kMaxMessageBytes);
  wire::ProgressFrame frame{};
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kStandstill, text.data(), text.size());
}

Frame notice_frame(const std::string& full_text) {
  const std::string_view text = cut(full_text, kMaxMessageBytes);
  wire::NoticeFrame frame{};
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kNotice, text.data(), text.size());
}

Frame runners_wanted_frame(const std::string& pool) {
  wire::RunnersWantedFrame frame{};
  pool.copy(frame.pool, sizeof frame.pool);
  return finish(frame, FrameType::kRunnersWanted);
}

Frame attached_frame(const AttachReply& reply) {
  Frame texts;
  append_text(texts, wire::TextKey::kOrderDigest, reply.order_digest);
  append_text(texts, wire::TextKey::kPipeline, reply.pipeline);
  append_text(texts, wire::TextKey::kJob, reply.job);
  wire::AttachedFrame frame{};
  frame.text_count = 3;
  for (const std::string& warning : reply.warnings) {
    if (frame.text_count == 3 + kMaxWarnings) break;
    append_text(texts, wire::TextKey::kWarning, cut(warning, kMaxWarningBytes));
    ++frame.text_count;
  }
  if (!reply.device.empty()) {
    append_text(texts, wire::TextKey::kDevice, reply.device);
    ++frame.text_count;
  }
  frame.session = reply.session;
  frame.items = reply.items;
  frame.steps_per_epoch = reply.steps_per_epoch;
  frame.batch_size = reply.batch_size;
  frame.seed = reply.seed;
  frame.shard = static_cast<std::int32_t>(reply.shard);
  frame.num_shards = static_cast<std::int32_t>(reply.num_shards);
  frame.replicas = static_cast<std::int32_t>(reply.replicas);
  frame.credits = reply.credits;
  frame.epoch = reply.start.epoch;
  frame.step = reply.start.step;
  frame.position = reply.start.position;
  frame.run = reply.in_run.run;
  frame.turn = reply.in_run.turn;
  frame.branch = reply.in_run.branch;
  frame.epochs = reply.epochs;
  frame.pipeline_version = reply.pipeline_version;
  return finish(frame, FrameType::kAttached, texts.data(), texts.size());
}

Frame version_frame(const VersionNotice& notice) {
  Frame texts;
  append_text(texts, wire::TextKey::kOrderDigest, notice.order_digest);
  wire::VersionFrame frame{};
  frame.items = notice.items;
  frame.steps_per_epoch = notice.steps_per_epoch;
  frame.batch_size = notice.batch_size;
  frame.pipeline_version = notice.pipeline_version;
  frame.credits = notice.credits;
  frame.text_count = 1;
  return finish(frame, FrameType::kVersion, texts.data(), texts.size());
}

Frame schema_frame(std::uint32_t schema_id, std::uint32_t pipeline_version,
                   std::span<const wire::FieldLayout> fields) {
  wire::SchemaFrame frame{};
  frame.schema_id = schema_id;
  frame.pipeline_version = pipeline_version;
  frame.field_count = static_cast<std::uint32_t>(fields.size());
  return finish(frame, FrameType::kSchema, fields.data(), fields.size_bytes());
}

Frame bye_frame(wire::ByeReason reason, const std::string& full_text) {
  const std::string_view text = cut(full_text, kMaxMessageBytes);
  wire::ByeFrame frame{};
  frame.reason = reason;
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  return finish(frame, FrameType::kBye, text.data(), text.size());
}

wire::BatchFrame batch_frame(const BatchNotice& notice) {
  wire::BatchFrame frame{};
  frame.header = {FrameType::kBatch, sizeof frame};
  frame.lease = notice.lease;
  frame.arena_id = notice.arena_id;
  frame.schema_id = notice.schema_id;
  frame.slot_offset = notice.slot_offset;
  frame.slot_bytes = notice.slot_bytes;
  frame.epoch = notice.epoch;
  frame.step = notice.step;
  frame.next_position = notice.next_position;
  frame.turn = notice.turn;
  frame.rows = notice.rows;
  frame.seek = notice.seek;
  frame.branch = notice.branch;
  frame.tell = notice.tell ? 1 : 0;
  return frame;
}

}  // namespace spdld::delivery
