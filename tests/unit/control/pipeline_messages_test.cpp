// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <gtest/gtest.h>

namespace spdld::control {
namespace {

TEST(ApplyRequest, TakesOverTextVarsAndEnvironment) {
  v1::PipelineText text;
  text.set_yaml("pipeline: p");
  text.set_file("/etc/p.yaml");
  (*text.mutable_vars())["size"] = "32";
  (*text.mutable_env())["HOME"] = "/home/a";
  const auto request = apply_request(text, true);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->yaml, "pipeline: p");
  EXPECT_EQ(request->file, "/etc/p.yaml");
  EXPECT_EQ(request->vars.at("size"), "32");
  EXPECT_EQ(request->env.at("HOME"), "/home/a");
  EXPECT_TRUE(request->dry_run);
}

TEST(ApplyRequest, CallsATextWithoutAFileADash) {
  v1::PipelineText text;
  text.set_yaml("pipeline: p");
  EXPECT_EQ(apply_request(text, false)->file, "-");
}

TEST(ApplyRequest, RefusesNoTextAndRelativeFiles) {
  v1::PipelineText text;
  ASSERT_FALSE(apply_request(text, false));
  text.set_yaml("pipeline: p");
  text.set_file("p.yaml");
  const auto refused = apply_request(text, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(),
            Status(Code::kInvalidArgument,
                   "file 'p.yaml' is relative, and the daemon cannot know to what: send its "
                   "absolute path, or '-' for a text without a file"));
}

TEST(Fill, WritesAPipelineWithItsTensors) {
  session::PipelineView view;
  view.name = "p";
  view.version = 3;
  view.owner = 1000;
  view.state = "ready";
  view.items = 10;
  view.order_digest = "aa";
  view.content_digest = "bb";
  view.batch_size = 4;
  view.tensors = {{"image", FieldKind::kRagged, DType::kFloat32, {3, -1, -1}},
                  {"caption", FieldKind::kBytes, DType::kUInt8, {}, true},
                  {"packet", FieldKind::kBytes, DType::kUInt8, {}}};
  v1::Pipeline message;
  fill(&message, view);
  EXPECT_EQ(message.name(), "p");
  EXPECT_EQ(message.version(), 3u);
  EXPECT_EQ(message.owner(), 1000u);
  EXPECT_EQ(message.items(), 10u);
  EXPECT_EQ(message.order_digest(), "aa");
  EXPECT_EQ(message.content_digest(), "bb");
  ASSERT_EQ(message.tensors_size(), 3);
  EXPECT_EQ(message.tensors(0).kind(), "ragged");
  EXPECT_EQ(message.tensors(0).dtype(), "float32");
  EXPECT_EQ(message.tensors(0).shape(1), -1);
  EXPECT_EQ(message.tensors(1).kind(), "bytes");
  EXPECT_TRUE(message.tensors(1).text());
  EXPECT_FALSE(message.tensors(2).text());
}

}  // namespace
}  // namespace spdld::control
