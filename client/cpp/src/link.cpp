// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "frame_parts.h"
#include "text.h"

namespace spdld::client {
namespace {

using wire::FrameType;

constexpr std::size_t kMaxTexts = 256;

template <std::size_t N>
void set_text(char (&out)[N], std::string_view text) {
  text = text.substr(0, N - 1);
  std::copy(text.begin(), text.end(), out);
}

// "data protocol 2", "data protocols 1 to 4".
std::string protocols_text(std::uint32_t min, std::uint32_t max) {
  if (min == max) return join("data protocol ", min);
  return join("data protocols ", min, " to ", max);
}

// The shard is no more: what was sent of it before is still to be handed out.
bool ends_shard(std::span<const std::byte> frame) {
  const auto bye = fixed_part<wire::ByeFrame>(frame);
  return bye && bye->header.type == FrameType::kBye && bye->reason == wire::ByeReason::kResized;
}

}  // namespace

Link::Link(const std::string& socket_path, const std::string& client_name, const AttachWish& wish,
           DeviceArenas* device, Waiting& waiting)
    : start_runners_(wish.start_runners), buffer_(wire::kMaxFrameBytes), announced_(device) {
  std::string why;
  bool denied = false;
  channel_ = Channel::connect(socket_path, why, denied);
  if (!channel_) throw LinkLost{.why = why, .answered = false, .denied = denied};

  wire::HelloFrame hello{};
  hello.header = {FrameType::kHello, sizeof hello};
  hello.magic = wire::kWireMagic;
  hello.protocol_min = hello.protocol_max = wire::kProtocol;
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
    if (welcome->protocol != wire::kProtocol || welcome->protocol_min != wire::kProtocol ||
        welcome->protocol_max != wire::kProtocol) {
      throw ConnectionError(
          kFailedPrecondition,
          join("the daemon ", attached_.server, " speaks ",
               protocols_text(welcome->protocol_min, welcome->protocol_max), ", and ", client_name,
               " speaks ", protocols_text(wire::kProtocol, wire::kProtocol),
               ": install the same build of spdld for both"));
    }
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
  if (!attached_.device.empty() && device == nullptr) {
    channel_->lost();
    throw ConnectionError(kDataLoss, join("the daemon says that batches lie on ", attached_.device,
                                          ", and this loader was opened without a device"));
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
    (void)wait_for(POLLOUT, waiting, std::chrono::milliseconds::max());
  }
}

void Link::send_wish(const AttachWish& wish, Waiting& waiting) {
  constexpr std::size_t kPart = wire::kMaxFrameBytes - sizeof(wire::BlobFrame);
  if (wish.yaml.size() > wire::kMaxYamlBytes) {
    throw PipelineError(kInvalidArgument, join("the pipeline's YAML has ", wish.yaml.size(),
                                               " bytes; ", wire::kMaxYamlBytes, " are allowed"));
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
    append_text(out, key, text);
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
    (void)wait(waiting, std::chrono::milliseconds::max());
  }
}

bool Link::digest(std::span<const std::byte> frame, Waiting* waiting) {
  switch (fixed_part<wire::FrameHeader>(frame)->type) {
    case FrameType::kProgress:
    case FrameType::kStandstill: {
      const auto progress = fixed_part<wire::ProgressFrame>(frame);
      if (!progress || waiting == nullptr) return true;
      const std::string text = text_after<wire::ProgressFrame>(frame, progress->text_bytes);
      if (progress->header.type == FrameType::kStandstill) {
        waiting->standstill(text);
      } else {
        waiting->progress(progress->done, progress->total, text);
      }
      return true;
    }
    case FrameType::kRunnersWanted: {
      const auto wanted = fixed_part<wire::RunnersWantedFrame>(frame);
      if (!wanted) lose("the daemon sent a wish for runners that makes no sense");
      if (start_runners_)
        start_runners_({wanted->pool, ::strnlen(wanted->pool, sizeof wanted->pool)});
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
      comes_back_ = bye->reason == wire::ByeReason::kShutdown;
      if (comes_back_) lose(text);
      if (!heard_early_) channel_->lost();
      throw PipelineError(kCancelled, text);
    }
    case FrameType::kArenaOpen:
    case FrameType::kArenaRetire:
    case FrameType::kSchema:
    case FrameType::kVersion:
    case FrameType::kDeviceArena: return announces(frame);
    default: return false;
  }
}

bool Link::announces(std::span<const std::byte> frame) {
  try {
    switch (fixed_part<wire::FrameHeader>(frame)->type) {
      case FrameType::kArenaOpen: announced_.open_arena(frame, std::move(fd_)); break;
      case FrameType::kArenaRetire: announced_.retire_arena(frame); break;
      case FrameType::kSchema: announced_.add_schema(frame); break;
      case FrameType::kVersion: announced_.change_version(frame); break;
      case FrameType::kDeviceArena: announced_.add_device_memory(frame, std::move(fd_)); break;
      default: return false;
    }
  } catch (const Error&) {
    // Memory on the device may be there at another attempt: that begins with another attach.
    channel_->lost();
    throw;
  }
  return true;
}

void Link::read_attached(std::span<const std::byte> frame) {
  const auto attached = fixed_part<wire::AttachedFrame>(frame);
  if (!attached || attached->header.type != FrameType::kAttached) {
    lose("the daemon answered an attach with something else");
  }
  attached_.frame = *attached;
  Facts& facts = announced_.facts();
  facts.items = attached->items;
  facts.steps_per_epoch = attached->steps_per_epoch;
  facts.batch_size = attached->batch_size;
  facts.pipeline_version = attached->pipeline_version;
  facts.credits = attached->credits;
  const auto take = [&](wire::TextKey key, std::string text) {
    switch (key) {
      case wire::TextKey::kOrderDigest: facts.order_digest = std::move(text); break;
      case wire::TextKey::kPipeline: attached_.pipeline = std::move(text); break;
      case wire::TextKey::kJob: attached_.job = std::move(text); break;
      case wire::TextKey::kWarning: attached_.warnings.push_back(std::move(text)); break;
      case wire::TextKey::kDevice: attached_.device = std::move(text); break;
      default: break;
    }
  };
  const bool whole = read_texts(frame.subspan(sizeof *attached), attached->text_count, take);
  if (!whole) lose("the daemon's answer to an attach ends early");
  attached_.facts = facts;
}

const wire::FrameHeader* Link::poll(Waiting* waiting) {
  heard_early_ = false;
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
    const std::size_t least = type == FrameType::kBatch         ? sizeof(wire::BatchFrame)
                              : type == FrameType::kDeviceBatch ? sizeof(wire::DeviceBatchFrame)
                              : type == FrameType::kEpochEnd    ? sizeof(wire::EpochEndFrame)
                              : type == FrameType::kReset       ? sizeof(wire::ResetFrame)
                              : type == FrameType::kNotice      ? sizeof(wire::NoticeFrame)
                                                                : 0;
    if (least == 0) continue;  // an answer that nobody waits for any more
    if (frame.size() < least) lose("the daemon sent a frame that ends early");
    if (type == FrameType::kReset) {
      const auto reset = fixed_part<wire::ResetFrame>(frame);
      announced_.facts().steps_per_epoch = reset->steps_per_epoch;
    }
    return reinterpret_cast<const wire::FrameHeader*>(frame.data());
  }
}

std::string Link::notice_text(const wire::FrameHeader& frame) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&frame), frame.bytes);
  return text_after<wire::NoticeFrame>(bytes, fixed_part<wire::NoticeFrame>(bytes)->text_bytes);
}

bool Link::wait(Waiting& waiting, std::chrono::milliseconds at_most) {
  return wait_for(POLLIN, waiting, at_most);
}

bool Link::wait_for(short events, Waiting& waiting, std::chrono::milliseconds at_most) {
  if (waiting.wait(channel_->fd(), events, at_most)) return true;
  if (channel_->is_deserted()) lose("the daemon was killed while its storage did not answer");
  return false;
}

template <typename Frame>
std::shared_ptr<BatchState> Link::make(const Frame& frame) {
  try {
    return announced_.batch(channel_, frame);
  } catch (const ConnectionError&) {
    channel_->lost();
    throw;
  }
}

template std::shared_ptr<BatchState> Link::make(const wire::BatchFrame& frame);
template std::shared_ptr<BatchState> Link::make(const wire::DeviceBatchFrame& frame);

void Link::release(std::uint64_t lease) { channel_->end(lease); }

void Link::seek(std::uint64_t turn, std::uint64_t epoch, std::uint32_t serial, Waiting& waiting) {
  wire::SeekFrame frame{};
  frame.header = {FrameType::kSeek, sizeof frame};
  frame.turn = turn;
  frame.epoch = epoch;
  frame.seek = serial;
  send(&frame, sizeof frame, waiting);
}

void Link::skip(const Cursor& from, std::uint32_t steps, std::uint32_t serial, Waiting& waiting) {
  wire::SeekFrame frame{};
  frame.header = {FrameType::kSeek, sizeof frame};
  frame.turn = from.turn;
  frame.epoch = from.epoch;
  frame.seek = serial;
  frame.skip = steps;
  send(&frame, sizeof frame, waiting);
}

std::uint32_t Link::ask(wire::QueryKind kind, std::span<const std::byte> more, Waiting& waiting) {
  wire::QueryFrame frame{};
  frame.header = {FrameType::kQuery, static_cast<std::uint32_t>(sizeof frame + more.size())};
  frame.kind = kind;
  frame.serial = ++serial_;
  std::vector<std::byte> out;
  append(out, &frame, sizeof frame);
  append(out, more.data(), more.size());
  send(out.data(), out.size(), waiting);
  return frame.serial;
}

std::string Link::query(wire::QueryKind kind, Waiting& waiting) {
  const std::uint32_t serial = ask(kind, {}, waiting);
  return blob(kind == wire::QueryKind::kClasses ? wire::BlobKind::kClasses : wire::BlobKind::kStats,
              serial, waiting);
}

std::string Link::uris(std::span<const std::int64_t> items, const std::string& order_digest,
                       Waiting& waiting) {
  const wire::UrisPart part{.count = static_cast<std::uint32_t>(items.size()),
                            .digest_bytes = static_cast<std::uint32_t>(order_digest.size())};
  std::vector<std::byte> more;
  append(more, &part, sizeof part);
  append(more, items.data(), items.size_bytes());
  append(more, order_digest.data(), order_digest.size());
  return blob(wire::BlobKind::kUris, ask(wire::QueryKind::kUris, more, waiting), waiting);
}

void Link::tell_waited(wire::WaitedFrame frame) {
  frame.header = {FrameType::kWaited, sizeof frame};
  bool full = false;
  (void)channel_->send(&frame, sizeof frame, full);  // the next one says it, or the link is lost
}

Applied Link::apply(const ApplyWish& wish, Waiting& waiting) {
  wire::ApplyFrame frame{};
  frame.serial = ++serial_;
  frame.at = wish.at;
  frame.epoch = wish.epoch;
  frame.step = wish.step;
  frame.allow_schema_change = wish.allow_schema_change ? 1 : 0;
  frame.text_count = static_cast<std::uint32_t>(wish.vars.size());
  std::vector<std::byte> out(sizeof frame);
  for (const auto& [name, value] : wish.vars) {
    append_text(out, wire::TextKey::kVar, join(name, "=", value));
  }
  if (out.size() > wire::kMaxFrameBytes || wish.vars.size() > kMaxTexts) {
    throw PipelineError(kInvalidArgument,
                        join(wish.vars.size(), " variables take ", out.size(), " bytes together; ",
                             kMaxTexts, " and ", wire::kMaxFrameBytes, " bytes are allowed"));
  }
  frame.header = {FrameType::kApply, static_cast<std::uint32_t>(out.size())};
  std::memcpy(out.data(), &frame, sizeof frame);
  send(out.data(), out.size(), waiting);

  for (;;) {
    const auto told = fixed_part<wire::AppliedFrame>(answer(frame.serial, waiting));
    if (!told || told->header.type != FrameType::kApplied) continue;
    return {.version = told->version,
            .epoch = told->epoch,
            .step = told->step,
            .tuned = told->tuned != 0};
  }
}

template <typename Frame>
bool Link::answers(std::span<const std::byte> frame, std::uint32_t serial) {
  const auto answer = fixed_part<Frame>(frame);
  if (!answer) lose("the daemon sent an answer that ends early");
  return answer->serial == serial;
}

std::span<const std::byte> Link::answer(std::uint32_t serial, Waiting& waiting) {
  for (;;) {
    const auto frame = await(waiting);
    bool comes = false;
    switch (fixed_part<wire::FrameHeader>(frame)->type) {
      case FrameType::kBlob: comes = answers<wire::BlobFrame>(frame, serial); break;
      case FrameType::kApplied: comes = answers<wire::AppliedFrame>(frame, serial); break;
      case FrameType::kRefused: {
        if (!answers<wire::RefusedFrame>(frame, serial)) break;
        const auto refused = *fixed_part<wire::RefusedFrame>(frame);
        const bool known = refused.code >= kCancelled && refused.code <= kUnauthenticated;
        throw PipelineError(known ? static_cast<int>(refused.code) : kUnknown,
                            text_after<wire::RefusedFrame>(frame, refused.text_bytes));
      }
      // These count now.
      case FrameType::kProgress:
      case FrameType::kStandstill:
      case FrameType::kRunnersWanted:
      case FrameType::kError:
      case FrameType::kBye:
        // What was sent before the shard's end comes first: this call alone hears of it now.
        heard_early_ = ends_shard(frame);
        if (heard_early_) deferred_.push_back({.bytes = {frame.begin(), frame.end()}, .fd = {}});
        digest(frame, &waiting);
        break;
      default:  // what belongs to the stream keeps its order
        if (deferred_.size() == kMaxDeferred)
          lose("the daemon does not answer, and goes on sending");
        deferred_.push_back({.bytes = {frame.begin(), frame.end()}, .fd = std::move(fd_)});
    }
    if (!comes) continue;
    waiting.alive();
    return frame;
  }
}

std::string Link::blob(wire::BlobKind kind, std::uint32_t serial, Waiting& waiting) {
  std::string text;
  for (;;) {
    const auto frame = answer(serial, waiting);
    const auto blob = fixed_part<wire::BlobFrame>(frame);
    if (!blob || blob->header.type != FrameType::kBlob || blob->kind != kind) continue;
    const auto part = frame.subspan(sizeof(wire::BlobFrame));
    if (blob->offset != text.size() || blob->total_bytes > wire::kMaxBlobBytes ||
        part.size() > blob->total_bytes - text.size()) {
      lose("the daemon sent an answer whose parts do not follow each other");
    }
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    if (text.size() == blob->total_bytes) return text;
    if (part.empty()) lose("the daemon sent an answer of which a part is empty");
  }
}

void Link::detach() {
  if (comes_back_) return;  // it would be a good-bye
  wire::DetachFrame frame{};
  frame.header = {FrameType::kDetach, sizeof frame};
  bool full = false;
  (void)channel_->send(&frame, sizeof frame, full);  // a hang-up says the same
}

}  // namespace spdld::client
