// SPDX-License-Identifier: Apache-2.0
#include "spec/scalar.h"

#include <gtest/gtest.h>

namespace spdld::spec {
namespace {

TEST(Scalar, ReadsIntegersStrictly) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("+7"), 7);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-", "+", "+-1", "--1", "010", "0x10", "1_000", "1.0", "1e3", " 1",
                           "1 ", "9223372036854775808"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
  }
}

TEST(Scalar, ReadsNumbersWithoutInfinities) {
  EXPECT_EQ(parse_number("1"), 1.0);
  EXPECT_EQ(parse_number("-.5"), -0.5);
  EXPECT_EQ(parse_number("1e-3"), 0.001);
  EXPECT_EQ(parse_number("+2."), 2.0);
  for (const char* text :
       {"", ".", "inf", "nan", ".inf", "1e999", "1,5", "0x1", "1f", "e5", "010"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(Scalar, ReadsSizesInBothKindsOfUnits) {
  EXPECT_EQ(parse_bytes("1048576"), 1u << 20);
  EXPECT_EQ(parse_bytes("64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("64 MiB"), 64u << 20);
  EXPECT_EQ(parse_bytes("1kB"), 1000u);
  EXPECT_EQ(parse_bytes("1.5MB"), 1'500'000u);
  EXPECT_EQ(parse_bytes("2GiB"), 2ull << 30);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000u);
  for (const char* text : {"", "MiB", "64mib", "64M", "-1", "1  MiB", "1.0001B", "9999999TiB",
                           "99999999999999999999", "1.2.3", "9e3"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Scalar, ReadsPercentages) {
  EXPECT_EQ(parse_percent("25%"), 0.25);
  EXPECT_EQ(parse_percent("12.5%"), 0.125);
  for (const char* text : {"25", "%", "0%", "101%", "-5%", "25 %"}) {
    EXPECT_EQ(parse_percent(text), std::nullopt) << text;
  }
}

TEST(Scalar, QuotesOnOneShortLine) {
  EXPECT_EQ(quote("a\nb"), "'a b'");
  EXPECT_EQ(quote(std::string(200, 'x')), "'" + std::string(60, 'x') + "...'");
  // Not in the middle of a letter.
  const std::string letters(59, 'x');
  EXPECT_EQ(quote(letters + "\xE2\x82\xAC"), "'" + letters + "...'");
}

TEST(Scalar, KnowsNames) {
  EXPECT_TRUE(is_name("imagenet-train_2.0"));
  EXPECT_TRUE(is_name(std::string(128, 'a')));
  EXPECT_TRUE(is_name("_1-."));
  for (const std::string& text :
       {std::string(), std::string("a b"), std::string("a/b"), std::string("-x"), std::string("."),
        std::string(".."), std::string(".x"), std::string(129, 'a')}) {
    EXPECT_FALSE(is_name(text)) << text;
  }
}

}  // namespace
}  // namespace spdld::spec
