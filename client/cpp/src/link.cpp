// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "text.h"

namespace spdld::client {
namespace {

using wire::FrameType;

// The fixed part of a frame; nothing if it is shorter than that.
template <typename T>
std::optional<T> fixed_part(std::span<const std::byte> frame) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (frame.size() < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, frame.data(), sizeof(T));
  return out;
}

// The text behind a fixed part.
template <typename T>
std::string text_after(std::span<const std::byte> frame, std::uint32_t bytes) {
  const auto rest = frame.subspan(sizeof(T));
  return {reinterpret_cast<const char*>(rest.data()), std::min<std::size_t>(bytes, rest.size())};
}

void append(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  out.insert(out.end(), at, at + bytes);
}

template <std::size_t N>
void set_text(char (&out)[N], std::string_view text) {
  text = text.substr(0, N - 1);
  std::copy(text.begin(), text.end(), out);
}

}  // namespace

Link::Link(const std::string& socket_path, const std::string& client_name, const AttachWish& wish,
           Waiting& waiting)
    : buffer_(wire::kMaxFrameBytes) {
  std::string why;
  channel_ = Channel::connect(socket_path, why);
  if (!channel_) throw LinkLost{why};

  wire::HelloFrame hello{};
  hello.header = {FrameType::kHello, sizeof hello};
  hello.magic = wire::kWireMagic;
  hello.protocol_min = wire::kProtocolMin;
  hello.protocol_max = wire::kProtocolMax;
  set_text(hello.client, client_name);
  send(&hello, sizeof hello, waiting);
  for (auto frame = await(waiting);; frame = await(waiting)) {
    if (digest(frame, &waiting)) continue;
    const auto welcome = fixed_part<wire::WelcomeFrame>(frame);
    if (!welcome || welcome->header.type != FrameType::kWelcome ||
        welcome->magic != wire::kWireMagic) {
      throw ConnectionError(kUnavailable, join(socket_path, " is no spdld daemon's socket"));
    }
    attached_.server =
        std::string(welcome->server, ::strnlen(welcome->server, sizeof welcome->server));
    break;
  }
  welcomed_ = true;
  waiting.alive();

  send_wish(wish, waiting);
  for (auto frame = await(waiting);; frame = await(waiting)) {
    if (digest(frame, &waiting)) continue;
    read_attached(frame);
    break;
  }
  serving_ = true;
  waiting.alive();
}

void Link::lose(const std::string& why) {
  channel_->lost();
  throw LinkLost{why};
}

void Link::send(const void* frame, std::size_t bytes, Waiting& waiting) {
  bool full = false;
  while (!channel_->send(frame, bytes, full)) {
    if (!full) {
      // What the daemon said before it went may explain it; if not, receive() says that it went.
      for (auto last = receive(); !last.empty(); last = receive()) digest(last, &waiting);
      lose("the daemon hung up");
    }
    waiting.wait(channel_->fd(), POLLOUT, std::chrono::milliseconds::max());
  }
}

void Link::send_wish(const AttachWish& wish, Waiting& waiting) {
  constexpr std::size_t kPart = wire::kMaxFrameBytes - sizeof(wire::BlobFrame);
  if (wish.yaml.size() > wire::kMaxBlobBytes) {
    throw PipelineError(kInvalidArgument, join("the pipeline's YAML has ", wish.yaml.size(),
                                               " bytes; ", wire::kMaxBlobBytes, " are allowed"));
  }
  std::vector<std::byte> out;
  for (std::size_t offset = 0; offset < wish.yaml.size(); offset += kPart) {
    const std::size_t part = std::min(kPart, wish.yaml.size() - offset);
    wire::BlobFrame blob{};
    blob.header = {FrameType::kBlob, static_cast<std::uint32_t>(sizeof blob + part)};
    blob.kind = wire::BlobKind::kPipelineYaml;
    blob.serial = 1;
    blob.offset = static_cast<std::uint32_t>(offset);
    blob.total_bytes = static_cast<std::uint32_t>(wish.yaml.size());
    out.clear();
    append(out, &blob, sizeof blob);
    append(out, wish.yaml.data() + offset, part);
    send(out.data(), out.size(), waiting);
  }
  wire::AttachFrame attach = wish.frame;
  attach.blob_bytes = static_cast<std::uint32_t>(wish.yaml.size());
  attach.text_count = static_cast<std::uint32_t>(wish.texts.size());
  out.assign(sizeof attach, std::byte{0});
  for (const auto& [key, text] : wish.texts) {
    const wire::TextHeader header{key, static_cast<std::uint32_t>(text.size())};
    append(out, &header, sizeof header);
    append(out, text.data(), text.size());
    out.resize((out.size() + 3) / 4 * 4);
  }
  if (out.size() > wire::kMaxFrameBytes) {
    throw PipelineError(kInvalidArgument,
                        join("names and variables take ", out.size(), " bytes together; ",
                             wire::kMaxFrameBytes, " are allowed"));
  }
  attach.header = {FrameType::kAttach, static_cast<std::uint32_t>(out.size())};
  std::memcpy(out.data(), &attach, sizeof attach);
  send(out.data(), out.size(), waiting);
}

std::span<const std::byte> Link::receive() {
  std::size_t bytes = 0;
  std::string why;
  fd_.reset();
  switch (channel_->receive(buffer_, bytes, fd_, why)) {
    case Channel::Got::kNothing: return {};
    case Channel::Got::kHangUp: lose(why);
    case Channel::Got::kFrame: break;
  }
  const std::span<const std::byte> frame(buffer_.data(), bytes);
  const auto header = fixed_part<wire::FrameHeader>(frame);
  if (!header || header->bytes != bytes) lose("the daemon sent a frame that makes no sense");
  return frame;
}

std::span<const std::byte> Link::await(Waiting& waiting) {
  for (;;) {
    const auto frame = receive();
    if (!frame.empty()) return frame;
    waiting.wait(channel_->fd(), POLLIN, std::chrono::milliseconds::max());
  }
}

bool Link::digest(std::span<const std::byte> frame, Waiting* waiting) {
  switch (fixed_part<wire::FrameHeader>(frame)->type) {
    case FrameType::kProgress: {
      const auto progress = fixed_part<wire::ProgressFrame>(frame);
      if (progress && waiting != nullptr) {
        waiting->progress(progress->done, progress->total,
                          text_after<wire::ProgressFrame>(frame, progress->text_bytes));
      }
      return true;
    }
    case FrameType::kError: {
      const auto error = fixed_part<wire::ErrorFrame>(frame);
      if (!error) lose("the daemon sent an error that makes no sense");
      const std::string text = text_after<wire::ErrorFrame>(frame, error->text_bytes);
      const int code = static_cast<int>(error->code);
      if (error->fatal != 0) channel_->lost();
      // Whoever cannot be served yet may try again. Once it is served, it is the data that cannot
      // be had, by now after all retries: that is for the caller to know.
      if (code == kUnavailable && error->fatal != 0 && !serving_) throw LinkLost{text};
      if (!welcomed_) throw ConnectionError(code, text);
      throw PipelineError(code, text);
    }
    case FrameType::kBye: {
      const auto bye = fixed_part<wire::ByeFrame>(frame);
      if (!bye) lose("the daemon sent a farewell that makes no sense");
      const std::string text = text_after<wire::ByeFrame>(frame, bye->text_bytes);
      if (bye->reason == wire::ByeReason::kShutdown) lose(text);
      channel_->lost();
      throw PipelineError(kCancelled, text);
    }
    case FrameType::kArenaOpen: open_arena(frame); return true;
    case FrameType::kArenaRetire: {
      const auto retire = fixed_part<wire::ArenaRetireFrame>(frame);
      if (!retire) lose("the daemon retired an arena in a way that makes no sense");
      std::erase_if(arenas_, [&](const auto& arena) { return arena.first == retire->arena_id; });
      return true;
    }
    case FrameType::kSchema: {
      std::string why;
      auto schema = read_schema(frame, why);
      if (!schema) throw ConnectionError(kDataLoss, why);
      std::erase_if(schemas_, [&](const auto& old) { return old->id == schema->id; });
      schemas_.push_back(std::move(schema));
      return true;
    }
    default: return false;
  }
}

void Link::open_arena(std::span<const std::byte> frame) {
  const auto open = fixed_part<wire::ArenaOpenFrame>(frame);
  if (!open || !fd_) lose("the daemon sent an arena without its memory");
  auto mapping = Mapping::open(std::move(fd_), *open);
  std::erase_if(arenas_, [&](const auto& arena) { return arena.first == open->arena_id; });
  arenas_.emplace_back(open->arena_id, std::move(mapping));
}

void Link::read_attached(std::span<const std::byte> frame) {
  const auto attached = fixed_part<wire::AttachedFrame>(frame);
  if (!attached || attached->header.type != FrameType::kAttached) {
    lose("the daemon answered an attach with something else");
  }
  attached_.frame = *attached;
  auto rest = frame.subspan(sizeof(wire::AttachedFrame));
  for (std::uint32_t i = 0; i < attached->text_count; ++i) {
    const auto header = fixed_part<wire::TextHeader>(rest);
    if (!header || header->bytes > rest.size() - sizeof(wire::TextHeader)) {
      lose("the daemon's answer to an attach ends early");
    }
    const std::string text = text_after<wire::TextHeader>(rest, header->bytes);
    if (header->key == wire::TextKey::kOrderDigest) attached_.order_digest = text;
    if (header->key == wire::TextKey::kPipeline) attached_.pipeline = text;
    if (header->key == wire::TextKey::kJob) attached_.job = text;
    const std::size_t padded =
        sizeof(wire::TextHeader) + (static_cast<std::size_t>(header->bytes) + 3) / 4 * 4;
    rest = rest.subspan(std::min(padded, rest.size()));
  }
}

const wire::FrameHeader* Link::poll(Waiting* waiting) {
  for (;;) {
    std::span<const std::byte> frame;
    if (!deferred_.empty()) {
      current_ = std::move(deferred_.front());
      deferred_.pop_front();
      fd_ = std::move(current_.fd);
      frame = current_.bytes;
    } else {
      frame = receive();
      if (frame.empty()) return nullptr;
    }
    if (digest(frame, waiting)) continue;
    const FrameType type = fixed_part<wire::FrameHeader>(frame)->type;
    const std::size_t least = type == FrameType::kBatch      ? sizeof(wire::BatchFrame)
                              : type == FrameType::kEpochEnd ? sizeof(wire::EpochEndFrame)
                              : type == FrameType::kReset    ? sizeof(wire::ResetFrame)
                                                             : 0;
    if (least == 0) continue;  // an answer that nobody waits for any more, or of a newer daemon
    if (frame.size() < least) lose("the daemon sent a frame that ends early");
    return reinterpret_cast<const wire::FrameHeader*>(frame.data());
  }
}

bool Link::wait(Waiting& waiting, std::chrono::milliseconds at_most) {
  return waiting.wait(channel_->fd(), POLLIN, at_most);
}

std::shared_ptr<BatchState> Link::batch(const wire::BatchFrame& frame) {
  const auto arena = std::find_if(arenas_.begin(), arenas_.end(), [&](const auto& candidate) {
    return candidate.first == frame.arena_id;
  });
  const auto schema = std::find_if(schemas_.begin(), schemas_.end(), [&](const auto& candidate) {
    return candidate->id == frame.schema_id;
  });
  if (arena == arenas_.end() || schema == schemas_.end() ||
      !arena->second->contains(frame.slot_offset, frame.slot_bytes) || frame.slot_offset % 8 != 0) {
    throw ConnectionError(kDataLoss, join("step ", frame.step, " of epoch ", frame.epoch,
                                          " lies in memory that the daemon did not announce"));
  }
  return make_batch(std::make_shared<Lease>(channel_, arena->second, frame), *schema, frame);
}

void Link::release(std::uint64_t lease) { channel_->end(lease); }

void Link::seek(const Cursor& to, std::uint32_t serial, Waiting& waiting) {
  wire::SeekFrame frame{};
  frame.header = {FrameType::kSeek, sizeof frame};
  frame.epoch = to.epoch;
  frame.position = to.position;
  frame.step = to.step;
  frame.seek = serial;
  send(&frame, sizeof frame, waiting);
}

std::string Link::query(wire::QueryKind kind, Waiting& waiting) {
  wire::QueryFrame frame{};
  frame.header = {FrameType::kQuery, sizeof frame};
  frame.kind = kind;
  frame.serial = ++query_serial_;
  send(&frame, sizeof frame, waiting);
  std::string text;
  for (;;) {
    const auto answer = await(waiting);
    const FrameType type = fixed_part<wire::FrameHeader>(answer)->type;
    if (type != FrameType::kBlob) {
      // Progress, errors and farewells count now; what belongs to the stream keeps its order.
      if (type == FrameType::kProgress || type == FrameType::kError || type == FrameType::kBye) {
        digest(answer, &waiting);
      } else {
        deferred_.push_back({.bytes = {answer.begin(), answer.end()}, .fd = std::move(fd_)});
      }
      continue;
    }
    const auto blob = fixed_part<wire::BlobFrame>(answer);
    if (!blob) lose("the daemon sent an answer that makes no sense");
    if (blob->serial != query_serial_) continue;
    waiting.alive();
    const auto part = answer.subspan(sizeof(wire::BlobFrame));
    if (blob->offset != text.size() || blob->total_bytes > wire::kMaxBlobBytes ||
        part.size() > blob->total_bytes - text.size()) {
      lose("the daemon sent an answer whose parts do not follow each other");
    }
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    if (text.size() == blob->total_bytes) return text;
  }
}

void Link::detach() {
  wire::DetachFrame frame{};
  frame.header = {FrameType::kDetach, sizeof frame};
  bool full = false;
  (void)channel_->send(&frame, sizeof frame, full);  // a hang-up says the same
}

}  // namespace spdld::client
