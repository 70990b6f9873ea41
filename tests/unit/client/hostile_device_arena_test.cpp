// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/device_arena_fixture.h"
#include "tests/unit/client/gpu_daemon.h"
#include "tests/unit/client/hostile_daemon.h"

namespace spdld {
namespace {

using test::DeviceArenaTest;
using test::kGranule;
using ::testing::HasSubstr;

// A daemon of another version, or a broken one, that this process makes memory for.
class HostileDeviceArenaTest : public DeviceArenaTest {
 protected:
  using Conversation = test::Conversation;
  using ArenaFrame = wire::DeviceArenaFrame;
  using BatchFrame = wire::DeviceBatchFrame;

  static wire::FieldLayout image() {
    wire::FieldLayout field = test::dense(30'000);
    field.flags = wire::kFieldOnDevice;
    field.capacity_bytes = 120'000;
    return field;
  }
  // What next() says in the conversation that `script` leads after the attach.
  static std::string says(const std::function<void(Conversation&)>& script,
                          const std::string& device = "cuda") {
    test::HostileDaemon daemon([&](Conversation& consumer) {
      consumer.attach();
      script(consumer);
      while (consumer.receive()) {
      }
    });
    LoaderOptions options = daemon.options();
    options.device = device;
    Loader loader = Loader::open(options);
    try {
      loader.next();
    } catch (const ConnectionError& error) {
      return error.what();
    }
    return "was accepted";
  }
  std::string arena_says(const std::function<void(ArenaFrame&)>& change) {
    const FakeCudaCounts before = gpu_.counts();
    std::string said = says([&](Conversation& consumer) {
      consumer.open(*host_);
      send(consumer, change, memory_.fd());
    });
    EXPECT_EQ(gpu_.counts().mapped_ranges, before.mapped_ranges);
    EXPECT_EQ(gpu_.counts().reservations, before.reservations);
    EXPECT_EQ(gpu_.counts().handles, before.handles);
    return said;
  }
  std::string batch_says(const std::function<void(BatchFrame&)>& change,
                         const std::vector<wire::FieldLayout>& fields = {image()}) {
    return says([&](Conversation& consumer) {
      consumer.open(*host_);
      send(consumer, {}, memory_.fd());
      consumer.schema(fields);
      send_batch(consumer, change);
    });
  }
  void send(Conversation& consumer, const std::function<void(ArenaFrame&)>& change, int fd) {
    ArenaFrame frame = test::device_arena_frame(host_->id(), memory_.bytes());
    if (change) change(frame);
    consumer.send(test::bytes_of(frame, wire::FrameType::kDeviceArena), fd);
  }
  void send_batch(Conversation& consumer, const std::function<void(BatchFrame&)>& change) {
    BatchFrame frame{};
    frame.batch = delivery::batch_frame({.lease = 1,
                                         .arena_id = host_->id(),
                                         .schema_id = 1,
                                         .slot_offset = host_->slot_offset(0),
                                         .slot_bytes = host_->shape().slot_bytes,
                                         .rows = 2});
    frame.device_offset = kGranule / 2;
    frame.device_bytes = 120'000;
    if (change) change(frame);
    frame.batch.header = {wire::FrameType::kDeviceBatch, sizeof frame};
    test::Bytes bytes(sizeof frame);
    std::memcpy(bytes.data(), &frame, sizeof frame);
    consumer.send(bytes);
  }

  delivery::ArenaBudget budget_{1 << 24, {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
  const std::unique_ptr<delivery::Arena> host_ =
      std::move(*delivery::Arena::create({.slot_bytes = 300'000, .slot_count = 2}, 5, budget_));
  test::GpuMemory memory_{kGranule};
};

TEST_F(HostileDeviceArenaTest, TakesABatchThatIsAsItShouldBe) {
  EXPECT_EQ(batch_says({}), "was accepted");
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryOfADeviceThatTheLoaderDoesNotHave) {
  EXPECT_THAT(says(
                  [&](Conversation& consumer) {
                    consumer.open(*host_);
                    send(consumer, {}, memory_.fd());
                  },
                  ""),
              HasSubstr("sent memory of a GPU, and this loader was opened without a device"));
  EXPECT_THAT(says(
                  [&](Conversation& consumer) {
                    consumer.open(*host_);
                    consumer.schema({image()});
                    send_batch(consumer, {});
                  },
                  ""),
              HasSubstr("memory of a GPU that the daemon did not announce"));
  test::HostileDaemon daemon([&](Conversation& consumer) {
    const std::uint8_t generation[16] = {};
    consumer.receive();
    consumer.send(delivery::welcome_frame(generation, "hostile"));
    consumer.receive();
    test::Bytes attached = delivery::attached_frame({.session = 1, .credits = 4});
    test::append_text(attached, wire::TextKey::kDevice, "GPU-0");
    wire::AttachedFrame fixed;
    std::memcpy(&fixed, attached.data(), sizeof fixed);
    fixed.header.bytes = static_cast<std::uint32_t>(attached.size());
    ++fixed.text_count;
    std::memcpy(attached.data(), &fixed, sizeof fixed);
    consumer.send(attached);
    consumer.receive();
  });
  EXPECT_THAT(daemon.next_says(), HasSubstr("batches lie on GPU-0, and this loader was opened"));
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryThatBelongsToNoArena) {
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.arena_id = 9; }),
              HasSubstr("arena 9, which it did not open"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, memory_.fd());
                send(consumer, {}, memory_.fd());
              }),
              HasSubstr("arena 5, which has some already"));
}

TEST_F(HostileDeviceArenaTest, RefusesMemoryThatMakesNoSense) {
  EXPECT_THAT(
      arena_says([](ArenaFrame& frame) { frame.kind = static_cast<wire::DeviceMemoryKind>(7); }),
      HasSubstr("its kind is 7, which this client does not know"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes = 0; }),
              HasSubstr("it has no bytes"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { ++frame.total_bytes; }),
              HasSubstr("no multiple of 2097152"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes = 1ull << 62; }),
              HasSubstr("and the GPU has"));
  EXPECT_THAT(arena_says([](ArenaFrame& frame) { frame.total_bytes += kGranule; }),
              HasSubstr("not as large as announced"));
  const test::GpuMemory larger(2 * kGranule);
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, larger.fd());
              }),
              HasSubstr("not as large as announced"));
}

TEST_F(HostileDeviceArenaTest, RefusesFilesThatAreNoMemoryOfAGpu) {
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, -1);
              }),
              HasSubstr("an arena on a GPU without its memory"));
  const UniqueFd file(::memfd_create("file", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kGranule), 0);
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, file.get());
              }),
              HasSubstr("the driver does not take its file descriptor as memory of a GPU"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                ArenaFrame frame{};
                frame.header = {wire::FrameType::kDeviceArena, 12};
                test::Bytes cut(12);
                std::memcpy(cut.data(), &frame, cut.size());
                consumer.send(cut, memory_.fd());
              }),
              HasSubstr("an arena on a GPU without its memory"));
}

TEST_F(HostileDeviceArenaTest, RefusesBatchesBeyondTheirMemory) {
  const char* const unannounced = "memory of a GPU that the daemon did not announce";
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_offset = ~0ull - 255; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_bytes = ~0ull; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_bytes = kGranule / 2 + 1; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.device_offset += 8; }),
              HasSubstr(unannounced));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.rows = 5; }),
              HasSubstr("reaches beyond the batch's part of the GPU's memory"));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.rows = ~0u; }),
              HasSubstr("reaches beyond the batch's part of the GPU's memory"));
  EXPECT_THAT(batch_says([](BatchFrame& frame) { frame.batch.slot_bytes = ~0ull; }),
              HasSubstr("memory that the daemon did not announce"));
  wire::FieldLayout far = image();
  far.offset = 1ull << 40;
  EXPECT_THAT(batch_says({}, {far}), HasSubstr("reaches beyond the batch's part"));
  // Tables of rows are in the slot, which is smaller than the part on the GPU.
  wire::FieldLayout sound = image();
  sound.kind = wire::FieldKind::kRagged;
  sound.shape[0] = -1;
  sound.offsets_offset = 300'000;
  EXPECT_THAT(batch_says({}, {sound}), HasSubstr("its offsets reach beyond its slot"));
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                consumer.schema({image()});
                send_batch(consumer, {});
              }),
              HasSubstr(unannounced));
}

TEST_F(HostileDeviceArenaTest, RefusesFieldsOnTheDeviceOfABatchInMainMemory) {
  EXPECT_THAT(says([&](Conversation& consumer) {
                consumer.open(*host_);
                send(consumer, {}, memory_.fd());
                consumer.schema({image()});
                consumer.batch(*host_);
              }),
              HasSubstr("it lies on a GPU, and the batch does not"));
}

TEST_F(HostileDeviceArenaTest, RefusesFieldsThatDoNotLieOnADevice) {
  wire::FieldLayout field = image();
  field.kind = wire::FieldKind::kBytes;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("such a field does not lie on a GPU"));
  field = image();
  field.flags |= wire::kFieldMeta;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("such a field does not lie on a GPU"));
  field = image();
  field.offset = 8;
  EXPECT_THAT(batch_says({}, {field}), HasSubstr("it is not aligned"));
}

TEST_F(HostileDeviceArenaTest, AFieldGoesToTheDeviceByItsSpaceNotByWhatABatchHasOfIt) {
  // Two rows of 30,000 bytes, of four that would fit.
  wire::FieldLayout large = image();
  large.flags = 0;
  wire::FieldLayout small = test::dense(30'000);
  std::strcpy(small.name, "small");
  small.offset = 120'064;
  small.capacity_bytes = 60'000;
  test::HostileDaemon daemon([&](Conversation& consumer) {
    consumer.attach();
    consumer.open(*host_);
    consumer.schema({large, small});
    consumer.batch(*host_);
    while (consumer.receive()) {
    }
  });
  LoaderOptions options = daemon.options();
  options.device = "cuda";
  {
    Loader loader = Loader::open(options);
    const auto batch = loader.next();
    EXPECT_TRUE((*batch)["image"].on_device);
    EXPECT_TRUE((*batch)["small"].copied);
  }
  options.device = "";
  Loader loader = Loader::open(options);
  EXPECT_TRUE((*loader.next())["image"].copied);
}

}  // namespace
}  // namespace spdld
