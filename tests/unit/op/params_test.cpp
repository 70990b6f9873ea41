// SPDX-License-Identifier: Apache-2.0
#include "op/params.h"

#include <gtest/gtest.h>

#include "op/registry.h"

namespace spdld {
namespace {

TEST(Params, GivesValuesByNameAndType) {
  const Params params({{"p", 0.5}, {"size", std::vector<std::int64_t>{2, 3}}, {"exif", true}});
  EXPECT_TRUE(params.has("p"));
  EXPECT_FALSE(params.has("q"));
  EXPECT_EQ(params.get<double>("p"), 0.5);
  EXPECT_EQ(params.get<std::vector<std::int64_t>>("size").back(), 3);
  EXPECT_TRUE(params.get<bool>("exif"));
}

TEST(ParamsDeathTest, RefusesNamesAndTypesThatNoTableHas) {
  const Params params({{"p", 0.5}});
  EXPECT_DEATH((void)params.get<double>("q"), "bug in spdld");
  EXPECT_DEATH((void)params.get<std::int64_t>("p"), "bug in spdld");
}

TEST(Registry, FindsOpsByNameAndKeepsTheirOrder) {
  const Registry registry({{.name = "b", .doc = "", .params = {}, .make = {}},
                           {.name = "a", .doc = "", .params = {}, .make = {}}});
  ASSERT_NE(registry.find("a"), nullptr);
  EXPECT_EQ(registry.find("a"), &registry.ops()[1]);
  EXPECT_EQ(registry.find("c"), nullptr);
  EXPECT_EQ(registry.ops()[0].name, "b");
}

}  // namespace
}  // namespace spdld
