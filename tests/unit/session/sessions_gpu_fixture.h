// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/media/record/npy_maker.h"
#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {

// The session layer over arrays that are large enough for a GPU: twelve steps of two of them.
class ArraysTest : public SessionsTest {
 protected:
  static constexpr std::uint64_t kArrayBytes = 40'000;
  static constexpr std::uint64_t kSteps = 12;

  void SetUp() override {
    for (std::uint64_t i = 0; i < 2 * kSteps; ++i)
      files_.file(
          "arrays/" + std::to_string(i) + ".npy",
          media::npy("|u1", "(40000,)", std::string(kArrayBytes, static_cast<char>('a' + i))));
    SessionsTest::SetUp();
  }
  job::ApplyRequest arrays(const std::string& delivery, const std::string& name = "g") const {
    job::ApplyRequest request;
    request.file = "-";
    request.yaml = "pipeline: " + name + "\nsource:\n  files: {root: " + files_.path("arrays") +
                   ", pattern: \"*.npy\", label: none}\nstages:\n  - fetch\n  - decode_npy: " +
                   "{field: image, dtype: uint8, shape: [40000]}\nbatch: {size: 2, last: drop}\n" +
                   "delivery: {" + delivery + ", prefetch: 2}\n";
    return request;
  }
  void apply_arrays(const std::string& delivery, const std::string& name = "g") {
    const auto applied = service_->apply(self_, arrays(delivery, name), nullptr);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  // Of job 'j', from a step of epoch 0 on.
  Result<SwapView> swap_to(const std::string& delivery, std::uint64_t step) {
    return service_->swap(self_, arrays(delivery), at(step), nullptr);
  }
  static SwapRequest at(std::uint64_t step) {
    return {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {0, step}}};
  }
  static bool is_on_gpu(const wire::BatchFrame& batch) {
    return batch.header.type == wire::FrameType::kDeviceBatch;
  }
  // Reads [from, to) and gives it back; all of it lies on a GPU, or none.
  void read(const Rank& rank, std::uint64_t from, std::uint64_t to, bool on_gpu) {
    for (std::uint64_t step = from; step < to; ++step) {
      const wire::BatchFrame batch = rank.any_batch();
      ASSERT_FALSE(HasFailure());
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(is_on_gpu(batch), on_gpu) << "step " << step;
      sessions_->release(*rank.connection, batch.lease);
    }
  }
};

}  // namespace spdld::session
