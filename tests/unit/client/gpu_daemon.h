// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda/driver.h"
#include "delivery/arena.h"
#include "delivery/frames.h"
#include "delivery/peer.h"
#include "posix/unique_fd.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/client/fake_daemon.h"
#include "tests/unit/client/hostile_daemon.h"

namespace spdld::test {

inline constexpr std::uint64_t kGranule = 2u << 20;

// Memory of the first device that other processes may map; gone with the last that has it. The
// thread has a context.
class GpuMemory {
 public:
  explicit GpuMemory(std::uint64_t bytes) : bytes_(bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    check(cu().MemCreate(&handle_, bytes_, &properties, 0));
    check(cu().MemAddressReserve(&address_, bytes_, 0, 0, 0));
    check(cu().MemMap(address_, bytes_, 0, handle_, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cu().MemSetAccess(address_, bytes_, &access, 1));
    int made = -1;
    check(cu().MemExportToShareableHandle(&made, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0));
    fd_ = UniqueFd(made);
  }
  ~GpuMemory() {
    check(cu().MemUnmap(address_, bytes_));
    check(cu().MemAddressFree(address_, bytes_));
    check(cu().MemRelease(handle_));
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return bytes_; }
  // Is there when it returns.
  void write(std::uint64_t offset, const std::vector<std::uint8_t>& content, CUstream stream) {
    check(cu().MemcpyHtoDAsync(address_ + offset, content.data(), content.size(), stream));
    check(cu().StreamSynchronize(stream));
  }

 private:
  static const cuda::Functions& cu() { return *cuda::driver().functions; }
  static void check(CUresult result) { SPDLD_CHECK(result == CUDA_SUCCESS); }

  const std::uint64_t bytes_;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  UniqueFd fd_;
};

// What the daemon calls on this thread is no matter of a capture elsewhere in the process.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { cuda::driver().functions->ThreadExchangeStreamCaptureMode(&mode_); }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

inline wire::DeviceArenaFrame device_arena_frame(std::uint32_t arena_id, std::uint64_t bytes) {
  wire::DeviceArenaFrame frame{};
  frame.arena_id = arena_id;
  frame.kind = wire::DeviceMemoryKind::kVmm;
  frame.total_bytes = bytes;
  return frame;
}

struct GpuPipeline {
  FakePipeline fake = {.steps = 12, .epochs = 1};
  // Rows of different length on the device: row r of step s has s + r + 1 elements of value r.
  bool ragged = false;
  // Where the batches of an epoch lie from a step on: true: on the GPU, as before the first of
  // them.
  std::map<std::uint64_t, bool> ways = {};
  bool told_at_attach = true;  // by kDevice
};

// A daemon that brings the images of its batches to the GPU itself, for one consumer at a time. A
// slot that is released is overwritten at once, on the GPU too: what reads it later reads kGone.
// On a thread of its own, and in settle().
class GpuDaemon {
 public:
  static constexpr std::uint8_t kGone = 0xEE;

  explicit GpuDaemon(const GpuPipeline& pipeline = {}) : GpuDaemon(pipeline, nullptr) {}
  // At a directory that outlives it, where an earlier one may have been.
  GpuDaemon(const GpuPipeline& pipeline, const std::string* directory)
      : pipeline_(pipeline), directory_(directory != nullptr ? *directory : own_dir_.path()) {
    CUcontext context = nullptr;
    check(cu().DevicePrimaryCtxRetain(&context, 0));
    check(cu().CtxPushCurrent(context));
    check(cu().StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
    check(cu().CtxPopCurrent(&context));
    context_ = context;
    lock_.emplace(std::move(*delivery::RuntimeLock::take(directory_)));
    listener_ =
        std::move(*delivery::listen_unix(*lock_, directory_ + "/data.sock", SOCK_SEQPACKET, 0666));
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { run(); });
  }
  ~GpuDaemon() { stop(); }
  GpuDaemon(const GpuDaemon&) = delete;
  GpuDaemon& operator=(const GpuDaemon&) = delete;

  // As if it had been killed, but for what of the device this process has of it.
  void stop() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    SPDLD_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
    CUcontext context = context_;
    check(cu().CtxPushCurrent(context));
    const RelaxedCapture relaxed;
    consumer_ = {};
    arenas_.clear();
    listener_.reset();
    check(cu().StreamDestroy(stream_));
    check(cu().CtxPopCurrent(&context));
    check(cu().DevicePrimaryCtxRelease(0));
    lock_.reset();
  }

  const std::string& address() const { return directory_; }
  // Does all that the consumer has asked for by now. The thread that calls has a context.
  void settle() {
    const std::lock_guard guard(mutex_);
    const RelaxedCapture relaxed;
    serve();
  }
  struct Seen {
    int attaches = 0;
    int releases = 0;
    int bad_releases = 0;
    int hang_ups = 0;
    std::vector<std::string> devices = {};  // of each attach
  };
  Seen seen() {
    settle();
    const std::lock_guard guard(mutex_);
    return seen_;
  }
  // The next batches come in other memory, on the GPU too; of what was there before nothing is kept
  // here.
  void replace_arena() {
    const std::lock_guard guard(mutex_);
    const RelaxedCapture relaxed;
    serve();
    const std::uint32_t old = next_arena_ - 1;
    open_arena();
    retire(old);
    feed();
  }

 private:
  struct Memory {
    std::unique_ptr<delivery::Arena> host;
    std::unique_ptr<GpuMemory> device;  // none: batches lie in main memory
    std::vector<std::uint32_t> free;
  };
  struct Consumer {
    UniqueFd socket;
    std::uint32_t credits = 0;
    delivery::StreamPosition at = {};
    std::uint64_t turn = 0;                                  // of the next batch
    std::map<std::uint64_t, delivery::StreamPosition> sent;  // by turn
    std::uint32_t seek = 0;
    bool attached = false;
    bool ended = false;
    std::uint32_t schema = 0;
    bool on_gpu = false;
    std::map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> leases;  // arena, slot
  };

  static const cuda::Functions& cu() { return *cuda::driver().functions; }
  static void check(CUresult result) { SPDLD_CHECK(result == CUDA_SUCCESS); }

  void run() {
    CUcontext context = context_;
    check(cu().CtxPushCurrent(context));
    const RelaxedCapture relaxed;
    for (;;) {
      std::array<pollfd, 3> look{pollfd{wake_.get(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0},
                                 pollfd{-1, POLLIN, 0}};
      {
        const std::lock_guard guard(mutex_);
        if (consumer_.socket) look[2].fd = consumer_.socket.get();
      }
      // A consumer that has come meanwhile is looked at in a moment.
      (void)::poll(look.data(), look.size(), 5);
      if (look[0].revents != 0) break;
      const std::lock_guard guard(mutex_);
      if (look[1].revents != 0) {
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket) {
          consumer_ = {};
          arenas_.clear();
          consumer_.socket = std::move(socket);
        }
      }
      serve();
    }
    check(cu().CtxPopCurrent(&context));
  }

  void serve() {
    Bytes frame(65536);
    for (bool reset = false; consumer_.socket;) {
      const ssize_t got = ::recv(consumer_.socket.get(), frame.data(), frame.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      // A consumer that hung up with frames unread: its own last ones come after the error.
      if (got < 0 && errno == ECONNRESET && !std::exchange(reset, true)) continue;
      if (got <= 0) {
        ++seen_.hang_ups;
        consumer_ = {};
        arenas_.clear();
        return;
      }
      on_frame(std::span(frame).first(static_cast<std::size_t>(got)));
    }
  }

  template <typename T>
  static T as(std::span<const std::byte> frame) {
    T out{};
    std::memcpy(&out, frame.data(), std::min(sizeof out, frame.size()));
    return out;
  }
  void send(const Bytes& frame, int fd = -1) {
    Conversation(consumer_.socket.get()).send(frame, fd);
  }

  void on_frame(std::span<const std::byte> frame) {
    const std::uint8_t generation[16] = {};
    switch (as<wire::FrameHeader>(frame).type) {
      case wire::FrameType::kHello: send(delivery::welcome_frame(generation, "gpu 1.0")); break;
      case wire::FrameType::kAttach: attach(frame); break;
      case wire::FrameType::kRelease: release(as<wire::ReleaseFrame>(frame).lease); break;
      case wire::FrameType::kSeek: {
        const auto seek = as<wire::SeekFrame>(frame);
        delivery::StreamPosition to{.epoch = seek.epoch};
        if (seek.skip > 0) {
          const auto sent = consumer_.sent.find(seek.turn);
          to = sent != consumer_.sent.end() ? sent->second : consumer_.at;
          to.step = std::min(to.step + seek.skip, pipeline_.fake.steps);
          to.position = to.step * pipeline_.fake.rows;
        }
        consumer_.at = to;
        consumer_.turn = seek.turn;
        consumer_.sent.erase(consumer_.sent.lower_bound(seek.turn), consumer_.sent.end());
        consumer_.seek = seek.seek;
        consumer_.ended = false;
        wire::ResetFrame reset{};
        reset.epoch = consumer_.at.epoch;
        reset.position = consumer_.at.position;
        reset.step = consumer_.at.step;
        reset.steps_per_epoch = pipeline_.fake.steps;
        reset.seek = consumer_.seek;
        reset.num_shards = 1;
        send(bytes_of(reset, wire::FrameType::kReset));
        feed();
        break;
      }
      case wire::FrameType::kDetach: consumer_.ended = true; break;
      default: break;
    }
  }

  void attach(std::span<const std::byte> frame) {
    const auto attach = as<wire::AttachFrame>(frame);
    ++seen_.attaches;
    seen_.devices.emplace_back();
    auto rest = frame.subspan(sizeof attach);
    for (std::uint32_t i = 0; i < attach.text_count; ++i) {
      const auto text = as<wire::TextHeader>(rest);
      if (text.key == wire::TextKey::kDevice)
        seen_.devices.back().assign(reinterpret_cast<const char*>(rest.data()) + sizeof text,
                                    text.bytes);
      rest = rest.subspan(sizeof text + (text.bytes + 3) / 4 * 4);
    }
    consumer_.credits = attach.credits != 0 ? attach.credits : 4;
    if (attach.start == wire::StartMode::kCursor)
      consumer_.at = {.epoch = attach.epoch, .position = attach.position, .step = attach.step};
    if (attach.run == kFakeRun) consumer_.turn = attach.turn;
    Bytes attached = delivery::attached_frame({.session = 1,
                                               .items = pipeline_.fake.steps * pipeline_.fake.rows,
                                               .steps_per_epoch = pipeline_.fake.steps,
                                               .batch_size = pipeline_.fake.rows,
                                               .seed = 42,
                                               .credits = consumer_.credits,
                                               .start = consumer_.at,
                                               .in_run = {.run = kFakeRun, .turn = consumer_.turn},
                                               .epochs = pipeline_.fake.epochs,
                                               .pipeline_version = 1,
                                               .order_digest = pipeline_.fake.order_digest});
    if (pipeline_.told_at_attach && !seen_.devices.back().empty()) {
      append_text(attached, wire::TextKey::kDevice, seen_.devices.back());
      auto fixed = as<wire::AttachedFrame>(attached);
      fixed.header.bytes = static_cast<std::uint32_t>(attached.size());
      ++fixed.text_count;
      std::memcpy(attached.data(), &fixed, sizeof fixed);
    }
    send(attached);
    consumer_.attached = true;
    consumer_.on_gpu = lies_on_gpu(consumer_.at.step);
    open_arena();
    announce_schema();
    feed();
  }

  bool lies_on_gpu(std::uint64_t step) const {
    const auto after = pipeline_.ways.upper_bound(step);
    return after == pipeline_.ways.begin() || std::prev(after)->second;
  }

  std::vector<wire::FieldLayout> fields() const {
    std::vector<wire::FieldLayout> fields = layout_of(pipeline_.fake);
    if (consumer_.on_gpu) fields[0].flags |= wire::kFieldOnDevice;
    if (!pipeline_.ragged) return fields;
    wire::FieldLayout sound{};
    std::strcpy(sound.name, "sound");
    sound.kind = wire::FieldKind::kRagged;
    sound.dtype = wire::DType::kInt16;
    sound.ndim = 1;
    sound.shape[0] = -1;
    sound.capacity_bytes = 128 * 1024;
    sound.offsets_offset = fields.back().offset + 256;
    sound.shapes_offset = sound.offsets_offset + 1024;
    sound.offset = consumer_.on_gpu ? image_bytes() : sound.shapes_offset + 1024;
    if (consumer_.on_gpu) sound.flags |= wire::kFieldOnDevice;
    fields.push_back(sound);
    return fields;
  }
  std::uint64_t image_bytes() const {
    return (pipeline_.fake.rows * pipeline_.fake.image_bytes + 255) / 256 * 256;
  }
  std::uint64_t slot_bytes() const {
    return layout_of(pipeline_.fake).back().offset + 256 + 2048 + 128 * 1024;
  }
  // Of a batch on the GPU.
  std::uint64_t device_bytes() const { return image_bytes() + 128 * 1024; }

  void open_arena() {
    const std::uint32_t slots = consumer_.credits + 1;
    const std::uint32_t id = next_arena_++;
    Memory& memory = arenas_[id];
    memory.host = std::move(
        *delivery::Arena::create({.slot_bytes = slot_bytes(), .slot_count = slots}, id, budget_));
    Conversation(consumer_.socket.get()).open(*memory.host);
    if (consumer_.on_gpu) {
      const std::uint64_t bytes = (slots * device_bytes() + kGranule - 1) / kGranule * kGranule;
      memory.device = std::make_unique<GpuMemory>(bytes);
      send(bytes_of(device_arena_frame(id, bytes), wire::FrameType::kDeviceArena),
           memory.device->fd());
    }
    for (std::uint32_t i = 0; i < slots; ++i) memory.free.push_back(i);
  }
  void retire(std::uint32_t id) {
    Conversation(consumer_.socket.get()).retire(id);
    arenas_.at(id).device.reset();
    arenas_.at(id).free.clear();
  }
  void announce_schema() {
    ++consumer_.schema;
    send(delivery::schema_frame(consumer_.schema, consumer_.schema, fields()));
  }
  void change_way() {
    consumer_.on_gpu = !consumer_.on_gpu;
    const std::uint32_t old = next_arena_ - 1;
    open_arena();
    send(delivery::version_frame({.items = pipeline_.fake.steps * pipeline_.fake.rows,
                                  .steps_per_epoch = pipeline_.fake.steps,
                                  .batch_size = pipeline_.fake.rows,
                                  .pipeline_version = consumer_.schema + 1,
                                  .order_digest = pipeline_.fake.order_digest}));
    announce_schema();
    retire(old);
  }

  void feed() {
    const FakePipeline& fake = pipeline_.fake;
    while (consumer_.attached && !consumer_.ended) {
      if (consumer_.at.step >= fake.steps) {
        wire::EpochEndFrame end{};
        end.epoch = consumer_.at.epoch;
        end.steps = fake.steps;
        end.seek = consumer_.seek;
        consumer_.ended = fake.epochs != 0 && consumer_.at.epoch + 1 >= fake.epochs;
        end.last = consumer_.ended ? 1 : 0;
        send(bytes_of(end, wire::FrameType::kEpochEnd));
        consumer_.at = {.epoch = consumer_.at.epoch + 1, .position = 0, .step = 0};
        continue;
      }
      if (consumer_.leases.size() >= consumer_.credits) return;
      if (lies_on_gpu(consumer_.at.step) != consumer_.on_gpu) change_way();
      const std::uint32_t id = next_arena_ - 1;
      Memory& memory = arenas_.at(id);
      if (memory.free.empty()) return;
      const std::uint32_t slot = memory.free.front();
      memory.free.erase(memory.free.begin());
      fill(memory, slot);
      const std::uint64_t lease = next_lease_++;
      consumer_.leases[lease] = {id, slot};
      wire::DeviceBatchFrame frame{};
      frame.batch = delivery::batch_frame({.lease = lease,
                                           .arena_id = id,
                                           .schema_id = consumer_.schema,
                                           .slot_offset = memory.host->slot_offset(slot),
                                           .slot_bytes = slot_bytes(),
                                           .epoch = consumer_.at.epoch,
                                           .step = consumer_.at.step,
                                           .next_position = (consumer_.at.step + 1) * fake.rows,
                                           .turn = consumer_.turn,
                                           .rows = fake.rows,
                                           .seek = consumer_.seek});
      frame.device_offset = slot * device_bytes();
      frame.device_bytes = device_bytes();
      if (memory.device != nullptr) {
        Bytes bytes(sizeof frame);
        frame.batch.header = {wire::FrameType::kDeviceBatch, sizeof frame};
        std::memcpy(bytes.data(), &frame, sizeof frame);
        send(bytes);
      } else {
        send(bytes_of(frame.batch, wire::FrameType::kBatch));
      }
      consumer_.sent[consumer_.turn++] = consumer_.at;
      ++consumer_.at.step;
    }
  }

  void fill(Memory& memory, std::uint32_t slot) {
    const FakePipeline& fake = pipeline_.fake;
    const std::uint64_t step = consumer_.at.step;
    SPDLD_CHECK(memory.host->back(slot).ok());
    std::byte* const bytes = memory.host->slot(slot).data();
    fill_fake_slot(fake, bytes, consumer_.at, memory.device == nullptr);
    std::vector<std::uint8_t> values(device_bytes(), kGone);
    std::memset(values.data(), value_of(consumer_.at.epoch, step), fake.rows * fake.image_bytes);
    if (pipeline_.ragged) {
      const wire::FieldLayout sound = fields().back();
      std::byte* const to = memory.device == nullptr
                                ? bytes + sound.offset
                                : reinterpret_cast<std::byte*>(values.data()) + sound.offset;
      std::int64_t at = 0;
      std::memcpy(bytes + sound.offsets_offset, &at, 8);
      for (std::uint64_t row = 0; row < fake.rows; ++row) {
        const auto count = static_cast<std::int64_t>(step + row + 1);
        for (std::int64_t i = 0; i < count; ++i, ++at) {
          const auto value = static_cast<std::int16_t>(row);
          std::memcpy(to + at * 2, &value, 2);
        }
        std::memcpy(bytes + sound.offsets_offset + (row + 1) * 8, &at, 8);
        std::memcpy(bytes + sound.shapes_offset + row * 8, &count, 8);
      }
    }
    if (memory.device != nullptr) memory.device->write(slot * device_bytes(), values, stream_);
  }

  void release(std::uint64_t lease) {
    const auto found = consumer_.leases.find(lease);
    if (found == consumer_.leases.end()) {
      ++seen_.bad_releases;
      return;
    }
    ++seen_.releases;
    const auto [id, slot] = found->second;
    consumer_.leases.erase(found);
    Memory& memory = arenas_.at(id);
    std::memset(memory.host->slot(slot).data(), kGone, slot_bytes());
    if (memory.device != nullptr)
      memory.device->write(slot * device_bytes(), std::vector<std::uint8_t>(device_bytes(), kGone),
                           stream_);
    if (id + 1 == next_arena_) memory.free.push_back(slot);
    feed();
  }

  const GpuPipeline pipeline_;
  const ScratchDir own_dir_;
  const std::string directory_;
  std::optional<delivery::RuntimeLock> lock_;
  UniqueFd listener_;
  UniqueFd wake_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  delivery::ArenaBudget budget_{1u << 30, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
  std::mutex mutex_;  // guards what follows
  Consumer consumer_;
  std::map<std::uint32_t, Memory> arenas_;
  std::uint32_t next_arena_ = 1;
  std::uint64_t next_lease_ = 1;
  Seen seen_;
  std::thread thread_;
};

inline LoaderOptions options_for(const GpuDaemon& daemon) {
  return {.pipeline = "p",
          .job = "",
          .rank = 0,
          .world_size = 1,
          .device = "cuda",
          .address = daemon.address(),
          .timeout = std::chrono::seconds(60)};
}

}  // namespace spdld::test
