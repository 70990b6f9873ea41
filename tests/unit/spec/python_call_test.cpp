// SPDX-License-Identifier: Apache-2.0
#include "spec/python_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spdld::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(PythonCall, HasItsArgumentsInYaml) {
  EXPECT_THAT(python_arguments("Resize(256)"), Optional(ElementsAre(Pair("", "256"))));
  EXPECT_THAT(python_arguments("v2.RandomResizedCrop((224, 192), scale = (0.08, 1.), "
                               "interpolation=InterpolationMode.BICUBIC, antialias=True)"),
              Optional(ElementsAre(Pair("", "[224, 192]"), Pair("scale", "[0.08, 1.]"),
                                   Pair("interpolation", "bicubic"), Pair("antialias", "true"))));
  EXPECT_THAT(python_arguments("f(a=1e-3, b=-2,c='rgb', d=[[1],[2]],)"),
              Optional(ElementsAre(Pair("a", "1e-3"), Pair("b", "-2"), Pair("c", "rgb"),
                                   Pair("d", "[[1],[2]]"))));
  EXPECT_THAT(python_arguments("f(size=(224,), max_size=None)"),
              Optional(ElementsAre(Pair("size", "[224]"))));
  EXPECT_THAT(python_arguments("f()"), Optional(IsEmpty()));
}

TEST(PythonCall, IsNoneWithMoreThanValues) {
  for (const char* const text :
       {"f", "f(", "f(1", "(1]", "f(2 * 3)", "f(x=g(1)", "f({1: 2})", "f((1, 2)", "f(1))", "f('a)",
        "f('a: b')", "f(lambda x: x)", "f(,)", "f(a=)", "f(1/255)", "f(&a)", "f([1)]"})
    EXPECT_EQ(python_arguments(text), std::nullopt) << text;
  EXPECT_EQ(python_arguments("f(" + std::string(300, '1') + ")"), std::nullopt);
}

}  // namespace
}  // namespace spdld::spec
