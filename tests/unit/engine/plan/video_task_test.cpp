// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "tests/support/pipelines.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::engine {
namespace {

using media::test::ClipMaker;
using media::test::MediaMaker;
using media::test::moving_pictures;
using testing::compile;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr int kWidth = 96;
constexpr int kHeight = 64;
constexpr int kFrames = 4;
constexpr const char* kBatch = "batch: {size: 2}\n";

// A sample that is one clip.
class Sample final : public SampleInput {
 public:
  Sample(ClipMaker::Cut cut, std::uint64_t draw_key) : cut_(std::move(cut)) { key = draw_key; }
  std::span<const std::byte> part(std::size_t) const override { return cut_.bytes; }
  const MediaClip* clip(std::size_t) const override { return &cut_.clip; }
  Value value(std::size_t) const override { return std::int64_t{0}; }
  void set_value(std::size_t, const Value&) override {}

 private:
  ClipMaker::Cut cut_;
};

struct MadeClip {
  Status status;
  std::uint64_t wants = 0;  // memory, of which there was not enough
  std::vector<Bytes> rows;  // of each tensor
};

class VideoTaskTest : public ::testing::Test {
 protected:
  // Clips of a film of `source`, which stands still if it is one picture.
  void film(const std::string& source, const std::string& options = "") {
    file_ = maker_.make(source + "-c:v ffv1 -pix_fmt yuv444p " + options, "a.mkv");
    clips_ = std::make_unique<ClipMaker>(file_);
  }
  void moving() { film(moving_pictures(12)); }
  void still() {
    film("-f lavfi -i testsrc2=size=96x64:rate=25,trim=end_frame=1,loop=11:1,setpts=N/25/TB ");
  }

  static ClipShape clip_shape(std::int64_t repeats = 0) {
    return {.kind = StreamInfo::Kind::kVideo,
            .frames = kFrames,
            .repeats = repeats,
            .max_width = kWidth,
            .max_height = kHeight};
  }
  // Of files that all have this size.
  static ClipShape same_size(std::int64_t repeats = 0) {
    ClipShape shape = clip_shape(repeats);
    shape.width = kWidth;
    shape.height = kHeight;
    return shape;
  }
  static Result<std::shared_ptr<const Plan>> compiled(const std::string& stages,
                                                      std::int64_t repeats = 0,
                                                      const std::string& decode = "",
                                                      const std::string& batch = kBatch) {
    return compiled(clip_shape(repeats), stages, decode, batch);
  }
  static Result<std::shared_ptr<const Plan>> compiled(const ClipShape& shape,
                                                      const std::string& stages,
                                                      const std::string& decode = "",
                                                      const std::string& batch = kBatch) {
    return compile("  - fetch\n  - decode_video" + (decode.empty() ? "" : ": {" + decode + "}") +
                       "\n" + stages,
                   batch, {{.name = "video", .clip = shape}});
  }
  static std::shared_ptr<const Plan> plan_of(const std::string& stages, std::int64_t repeats = 0,
                                             const std::string& decode = "") {
    const auto plan = compiled(stages, repeats, decode);
    EXPECT_TRUE(plan) << plan.error().message();
    return plan ? *plan : nullptr;
  }

  ClipMaker::Cut cut(const std::vector<std::size_t>& numbers) const {
    std::vector<std::int64_t> times;
    for (const std::size_t number : numbers) times.push_back(clips_->times().at(number));
    return clips_->cut(times);
  }

  static MadeClip make(const Plan& plan, ClipMaker::Cut clip, std::uint64_t key = 7,
                       std::uint64_t room = 1 << 28) {
    Sample sample(std::move(clip), key);
    MadeClip made;
    std::vector<RowOutput> outputs;
    for (const TensorSpec& tensor : plan.tensors) {
      std::uint64_t bytes = wire::dtype_bytes(tensor.dtype);
      for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
      made.rows.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < plan.tensors.size(); ++i)
      outputs.emplace_back(plan.tensors[i], made.rows[i].data());
    const auto wants = plan.tasks.front()->make_worker()->run(sample, outputs, room);
    if (!wants) {
      made.status = wants.error();
    } else {
      made.wants = *wants;
    }
    return made;
  }

  // The values of one row, as [frame, channel, y, x].
  static std::vector<Bytes> frames(const Bytes& row, std::size_t count = kFrames) {
    std::vector<Bytes> frames;
    const std::size_t size = row.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(i * size);
      frames.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    }
    return frames;
  }

  static double seconds(const Bytes& row, std::size_t i) {
    double value = 0;
    std::memcpy(&value, row.data() + i * sizeof(value), sizeof(value));
    return value;
  }

  MediaMaker maker_;
  Bytes file_;
  std::unique_ptr<ClipMaker> clips_;
};

TEST_F(VideoTaskTest, MovesAllFramesOfAClipByOneDraw) {
  still();
  const auto plan =
      plan_of("  - random_resized_crop: {size: [24, 32]}\n  - random_horizontal_flip\n");
  std::vector<Bytes> seen;
  for (std::uint64_t key = 0; key < 8; ++key) {
    const MadeClip made = make(*plan, cut({0, 1, 2, 3}), key);
    ASSERT_TRUE(made.status.ok()) << made.status.message();
    const std::vector<Bytes> all = frames(made.rows[0]);
    EXPECT_THAT(all, Each(all.front()));
    if (std::find(seen.begin(), seen.end(), all.front()) == seen.end()) seen.push_back(all.front());
  }
  EXPECT_GE(seen.size(), 6U);
}

TEST_F(VideoTaskTest, PutsFramesWhereTheLayoutHasThem) {
  moving();
  const std::string stages = "  - resize: {size: [20, 30]}\n";
  constexpr std::size_t kPixels = 20 * 30;
  const auto tchw = plan_of(stages);
  const auto cthw = plan_of(stages, 0, "layout: cthw");
  const auto thwc = plan_of(stages, 0, "layout: thwc");
  EXPECT_THAT(tchw->tensors[0].shape, ElementsAre(kFrames, 3, 20, 30));
  EXPECT_THAT(cthw->tensors[0].shape, ElementsAre(3, kFrames, 20, 30));
  EXPECT_THAT(thwc->tensors[0].shape, ElementsAre(kFrames, 20, 30, 3));
  const Bytes a = make(*tchw, cut({0, 3, 6, 9})).rows[0];
  const Bytes b = make(*cthw, cut({0, 3, 6, 9})).rows[0];
  const Bytes c = make(*thwc, cut({0, 3, 6, 9})).rows[0];
  EXPECT_NE(frames(a)[0], frames(a)[1]);
  for (std::size_t t = 0; t < kFrames; ++t) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t i = 0; i < kPixels; ++i) {
        const std::byte expected = a[(t * 3 + channel) * kPixels + i];
        ASSERT_EQ(b[(channel * kFrames + t) * kPixels + i], expected);
        ASSERT_EQ(c[(t * kPixels + i) * 3 + channel], expected);
      }
    }
  }
}

TEST_F(VideoTaskTest, PutsRepeatedClipsBeforeFramesInEveryLayout) {
  moving();
  const std::string stages = "  - resize: {size: [10, 12]}\n";
  const Bytes one = make(*plan_of(stages, 0, "layout: cthw"), cut({0, 1, 2, 3})).rows[0];
  const Bytes other = make(*plan_of(stages, 0, "layout: cthw"), cut({8, 6, 4, 2})).rows[0];
  const auto plan = plan_of(stages, 2, "layout: cthw");
  EXPECT_THAT(plan->tensors[0].shape, ElementsAre(2, 3, kFrames, 10, 12));
  Bytes both = one;
  both.insert(both.end(), other.begin(), other.end());
  EXPECT_EQ(make(*plan, cut({0, 1, 2, 3, 8, 6, 4, 2})).rows[0], both);
}

TEST_F(VideoTaskTest, RepeatsAFrameThatTheClipRepeats) {
  moving();
  for (const std::string layout : {"tchw", "cthw", "thwc"}) {
    const auto plan = plan_of("  - resize: {size: [20, 30]}\n", 0, "layout: " + layout);
    const Bytes padded = make(*plan, cut({10, 11, 11, 11})).rows[0];
    const Bytes looped = make(*plan, cut({11, 10, 11, 10})).rows[0];
    if (layout == "cthw") {
      EXPECT_NE(padded, looped);
      continue;
    }
    EXPECT_EQ(frames(padded)[1], frames(padded)[3]);
    EXPECT_NE(frames(padded)[0], frames(padded)[1]);
    EXPECT_EQ(frames(looped)[0], frames(padded)[1]);
    EXPECT_EQ(frames(looped)[1], frames(padded)[0]);
    EXPECT_EQ(frames(looped)[3], frames(padded)[0]);
  }
}

TEST_F(VideoTaskTest, TellsWhenFramesAreShownAndForHowLong) {
  moving();
  const auto plan = plan_of("  - resize: {size: [8, 8]}\n", 0, "pts: when, duration: how_long");
  ASSERT_EQ(plan->tensors.size(), 3U);
  EXPECT_EQ(plan->tensors[1].name, "when");
  EXPECT_EQ(plan->tensors[1].dtype, DType::kFloat64);
  EXPECT_THAT(plan->tensors[1].shape, ElementsAre(kFrames));
  const MadeClip made = make(*plan, cut({9, 0, 5, 5}));
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  const std::vector<double> when{0.36, 0.0, 0.2, 0.2};
  for (std::size_t i = 0; i < kFrames; ++i) {
    EXPECT_NEAR(seconds(made.rows[1], i), when[i], 1e-9) << i;
    EXPECT_NEAR(seconds(made.rows[2], i), 0.04, 1e-9) << i;
  }
}

TEST_F(VideoTaskTest, IsRaggedWhereFramesOfClipsDifferInSize) {
  const auto refused = compiled("");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("the clips that come out of 'decode_video' may differ in size, and a "
                        "batch needs one: add a resize to [height, width], a center_crop"));
  const auto plan =
      compiled("", 0, "", "batch: {size: 2, collate: {video: {kind: ragged, max_bytes: 1MiB}}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->tensors[0].kind, FieldKind::kRagged);
  EXPECT_THAT((*plan)->tensors[0].shape, ElementsAre(kFrames, 3, -1, -1));
}

TEST_F(VideoTaskTest, StacksClipsOfFilesThatAllHaveOneSize) {
  moving();
  const auto plan = compiled(same_size(2), "", "layout: cthw");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ((*plan)->tensors[0].kind, FieldKind::kDense);
  EXPECT_THAT((*plan)->tensors[0].shape, ElementsAre(2, 3, kFrames, kHeight, kWidth));
  const auto crop = plan_of("  - center_crop: {size: [64, 96]}\n", 2, "layout: cthw");
  const auto clip = cut({0, 1, 2, 3, 8, 6, 4, 2});
  const MadeClip made = make(**plan, clip);
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  EXPECT_EQ(made.rows[0], make(*crop, clip).rows[0]);
}

TEST_F(VideoTaskTest, FollowsTheSizeOfAllFilesThroughItsStages) {
  moving();
  const auto plan = compiled(same_size(), "  - random_horizontal_flip\n  - resize: {size: 32}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT((*plan)->tensors[0].shape, ElementsAre(kFrames, 3, 32, 48));
  const MadeClip made = make(**plan, cut({0, 1, 2, 3}));
  EXPECT_TRUE(made.status.ok()) << made.status.message();
}

TEST_F(VideoTaskTest, LeavesAClipOfAnotherSizeThanAllFilesAnError) {
  moving();
  ClipShape shape = same_size();
  shape.height = kHeight - 2;
  const auto plan = compiled(shape, "");
  ASSERT_TRUE(plan) << plan.error().message();
  const MadeClip made = make(**plan, cut({0, 1, 2, 3}));
  EXPECT_EQ(made.status.code(), Code::kDataLoss);
  EXPECT_THAT(
      made.status.message(),
      HasSubstr("its field 'video' has the shape [4, 3, 64, 96], and a row of the stack "
                "[4, 3, 62, 96], which the others have: add a resize to [height, width], a "
                "center_crop or a random_resized_crop, or let them differ: batch: {collate: "
                "{video: {kind: ragged, max_bytes: 4MiB}}}"));
}

TEST_F(VideoTaskTest, LeavesClipsOfOneSizeRaggedWhereThatIsAskedFor) {
  moving();
  for (const std::string collate :
       {"{kind: ragged, max_bytes: 1MiB}", "{pad: 0, max_bytes: 1MiB}", "{max_bytes: 1MiB}"}) {
    SCOPED_TRACE(collate);
    const auto plan =
        compiled(same_size(), "", "", "batch: {size: 2, collate: {video: " + collate + "}}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ((*plan)->tensors[0].kind, FieldKind::kRagged);
    EXPECT_THAT((*plan)->tensors[0].shape, ElementsAre(kFrames, 3, -1, -1));
  }
  const auto stacked = compiled(same_size(), "", "", "batch: {size: 2, collate: {video: stack}}\n");
  ASSERT_TRUE(stacked) << stacked.error().message();
  EXPECT_EQ((*stacked)->tensors[0].kind, FieldKind::kDense);
}

TEST_F(VideoTaskTest, NamesFilesThatDifferInSizeAndTheWayOut) {
  ClipShape shape = clip_shape();
  shape.frames = 400;
  shape.sizes = "a.mp4 has 96x64 pixels, b.mp4 64x96";
  const auto refused = compiled(shape, "  - resize: {size: 32}\n");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("the clips that come out of 'decode_video + resize' differ in size (a.mp4 "
                        "has 96x64 pixels, b.mp4 64x96), and a batch needs one: add a resize to "
                        "[height, width], a center_crop or a random_resized_crop, or let them "
                        "differ: batch: {collate: {video: {kind: ragged, max_bytes: 8MiB}}}"));
  const auto stack = compiled(shape, "", "", "batch: {size: 2, collate: {video: {kind: stack}}}\n");
  ASSERT_FALSE(stack);
  EXPECT_THAT(stack.error().message(),
              HasSubstr("differ in size (a.mp4 has 96x64 pixels, b.mp4 64x96), so they cannot be "
                        "stacked: add a resize to [height, width]"));
}

TEST_F(VideoTaskTest, SaysWhatItTakesWhereThereIsNoRoom) {
  moving();
  const auto plan = plan_of("  - resize: {size: [20, 30]}\n");
  const MadeClip refused = make(*plan, cut({0, 1, 2, 3}), 7, 1000);
  EXPECT_TRUE(refused.status.ok());
  EXPECT_GT(refused.wants, 1000U);
  const MadeClip made = make(*plan, cut({0, 1, 2, 3}), 7, refused.wants);
  EXPECT_EQ(made.wants, 0U);
}

TEST_F(VideoTaskTest, FailsOnADamagedClipAndIsAsGoodAsNew) {
  film(moving_pictures(12), "-slicecrc 1 -g 1");
  const auto plan = plan_of("  - resize: {size: [20, 30]}\n");
  const Bytes good = make(*plan, cut({0, 1, 2, 3})).rows[0];
  ClipMaker::Cut damaged = cut({0, 1, 2, 3});
  damaged.bytes[damaged.bytes.size() - 20] ^= std::byte{1};
  const MadeClip made = make(*plan, damaged);
  EXPECT_EQ(made.status.code(), Code::kDataLoss);
  EXPECT_THAT(made.status.message(), HasSubstr("corrupt ffv1 video"));
  EXPECT_EQ(make(*plan, cut({0, 1, 2, 3})).rows[0], good);
}

TEST_F(VideoTaskTest, NeedsClips) {
  const auto plan = compile("  - fetch\n  - decode_video\n", "", {{.name = "video"}});
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("write 'clips:' under the source"));
}

TEST_F(VideoTaskTest, RefusesMoreFramesThanItsLimit) {
  const auto plan = compiled("", 3, "max_frames: 11");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("a sample has 12 frames, and max_frames is 11"));
}

TEST_F(VideoTaskTest, RefusesTwoFieldsOfOneName) {
  const auto plan = compiled("", 0, "pts: video");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("'video'"));
}

}  // namespace
}  // namespace spdld::engine
