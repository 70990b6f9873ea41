// SPDX-License-Identifier: Apache-2.0
#include "spec/ops_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

using ::testing::HasSubstr;

TEST(OpsPage, SaysOfEachOpWhatItDoesAndTakes) {
  const std::string page = ops_page(fake_registry());
  EXPECT_THAT(page, HasSubstr("### fetch\n\nBrings the bytes.\n\n### resize\n\nResizes.\n\n"
                              "| parameter | takes | default | |\n|---|---|---|---|\n"));
  EXPECT_THAT(page, HasSubstr("| `size` | integer, or [1 to 2 integers], 1 to 4096 | required | "
                              "height and width |\n"));
  EXPECT_THAT(page,
              HasSubstr("| `interpolation` | `nearest` or `bilinear` | `bilinear` | how |\n"));
  EXPECT_THAT(page, HasSubstr("| `max_size` | integer, from 1 | none | of the longer side |\n"));
  EXPECT_THAT(page, HasSubstr("| `antialias` | `true` or `false` | `true` | whether to |\n"));
  EXPECT_THAT(page, HasSubstr("| `range` | [2 numbers], from 0 | `[0.5, 1]` | least and most |\n"));
  EXPECT_THAT(page, HasSubstr("| `p` | number, 0 to 1 | `0.5` | probability |\n"));
}

TEST(OpsPage, KeepsATableWholeWhereTextHasBars) {
  const Registry registry(
      {{.name = "cut",
        .doc = "Cuts.",
        .params = {{.name = "at", .type = ParamType::kString, .doc = "left|right"}},
        .make = nullptr}});
  EXPECT_THAT(ops_page(registry), HasSubstr("| `at` | text | required | left\\|right |\n"));
}

TEST(OpsPage, ListsTheKeysOfFields) {
  const Registry registry(
      {{.name = "take",
        .doc = "Takes values.",
        .params = {{.name = "values",
                    .type = ParamType::kFieldMap,
                    .doc = "what they are",
                    .keys = {{.name = "pointer", .type = ParamType::kString, .doc = "where"},
                             {.name = "type",
                              .type = ParamType::kString,
                              .doc = "of what type",
                              .default_value = std::string("text"),
                              .choices = {"text", "int64"}}}}},
        .make = nullptr}});
  EXPECT_THAT(ops_page(registry),
              HasSubstr("| `values` | {field: pointer, ...} | required | what they are |\n"
                        "| `values`: `pointer` | text | required | where |\n"
                        "| `values`: `type` | `text` or `int64` | `text` | of what type |\n"));
}

}  // namespace
}  // namespace spdld::spec
