// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "source/item/source.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::source {

// What every Source promises. A Maker has
//   std::unique_ptr<Source> make(const std::map<std::string, std::string>& items);
// which makes a source of these items, by uri, with labels from the uri's first part, anew each
// time; std::string name(const std::string& uri), which is what the source calls that item; and
// void lose(const std::string& uri), which takes its bytes away from under it, with the code kLost.
template <typename Maker>
class SourceSuite : public ::testing::Test {
 protected:
  static std::map<std::string, std::string> items() {
    std::map<std::string, std::string> items;
    for (int i = 0; i < 100; ++i) {
      std::string bytes(static_cast<std::size_t>(i * i * 7), static_cast<char>('a' + i % 26));
      items["c" + std::to_string(i % 3) + "/" + std::to_string(i) + ".bin"] = bytes;
    }
    items["c1/deep/er/x.bin"] = std::string("\0\xff\n\r", 4);
    items["c1-/x.bin"] = "sorts before c1/";
    return items;
  }

  Maker maker;
};

TYPED_TEST_SUITE_P(SourceSuite);

TYPED_TEST_P(SourceSuite, ListsEveryItemInBytewiseOrder) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  ASSERT_EQ(source->size(), items.size());
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : items) EXPECT_EQ(source->read_uri(i++), this->maker.name(uri));
}

TYPED_TEST_P(SourceSuite, BringsEveryItemsBytes) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  FetchedItem buffer;
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : items) {
    const Status status = fetch_and_wait(*source, i++, buffer);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(text_of(buffer), bytes) << uri;
  }
}

TYPED_TEST_P(SourceSuite, BringsManyItemsAtOnce) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  std::vector<FetchedItem> buffers(source->size());
  FakeSink sink;
  std::set<std::uint64_t> pending;
  const std::vector<PartRequest> requests(1);
  for (std::uint64_t i = 0; i < source->size(); ++i) {
    const auto state = source->fetch(i, requests, buffers[i], sink, i + 1000);
    ASSERT_TRUE(state) << state.error().message();
    if (*state == FetchState::kPending) pending.insert(i);
  }
  for (const std::uint64_t i : pending) EXPECT_TRUE(sink.wait(i + 1000).ok());
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : items) {
    EXPECT_EQ(text_of(buffers[i]), bytes) << uri;
    EXPECT_EQ(sink.calls(i + 1000), pending.contains(i) ? 1 : 0);
    ++i;
  }
}

TYPED_TEST_P(SourceSuite, BringsAtHandTheSameOrNothing) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  std::vector<FetchedItem> buffers(source->size());
  std::vector<WantedItem> wanted;
  for (std::size_t i = buffers.size(); i-- > 0;)
    wanted.push_back({.item = i, .out = &buffers[i], .number = i});
  const std::vector<PartRequest> requests(1);
  source->bring_at_hand(wanted, requests);
  std::vector<std::string> texts;
  for (const auto& [uri, bytes] : items) texts.push_back(bytes);
  std::set<std::size_t> asked;
  for (const WantedItem& item : wanted) {
    EXPECT_TRUE(asked.insert(item.number).second);
    FetchedItem& out = buffers[item.number];
    EXPECT_EQ(item.out, &out);
    if (!item.brought) {
      ASSERT_TRUE(fetch_and_wait(*source, item.number, out).ok());
    }
    EXPECT_EQ(text_of(out), texts[item.number]) << item.number << (item.brought ? " brought" : "");
  }
}

TYPED_TEST_P(SourceSuite, HasTheSameDigestForTheSameItems) {
  const std::string digest = this->maker.make(this->items())->listing_digest();
  EXPECT_FALSE(digest.empty());
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(this->maker.make(this->items())->listing_digest(), digest);
}

TYPED_TEST_P(SourceSuite, HasAnotherDigestWhenAnItemComesGoesOrIsRenamed) {
  auto items = this->items();
  std::set<std::string> digests{this->maker.make(items)->listing_digest()};
  items["c0/new.bin"] = "new";
  EXPECT_TRUE(digests.insert(this->maker.make(items)->listing_digest()).second);
  items.erase("c0/new.bin");
  items["c0/newer.bin"] = "new";
  EXPECT_TRUE(digests.insert(this->maker.make(items)->listing_digest()).second);
  items.erase("c0/newer.bin");
  items.erase("c0/0.bin");
  EXPECT_TRUE(digests.insert(this->maker.make(items)->listing_digest()).second);
}

TYPED_TEST_P(SourceSuite, PutsAPartFirstAmongItsFieldsAndNamesEachOnce) {
  const auto source = this->maker.make(this->items());
  ASSERT_FALSE(source->fields().empty());
  EXPECT_EQ(source->fields()[0].kind, SourceField::Kind::kPart);
  std::set<std::string> names;
  for (const SourceField& field : source->fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
  }
}

TYPED_TEST_P(SourceSuite, LabelsItemsByTheirClass) {
  const auto source = this->maker.make(this->items());
  ASSERT_GE(source->fields().size(), 2u);
  EXPECT_EQ(source->classes(), (std::vector<std::string>{"c0", "c1", "c1-", "c2"}));
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : this->items()) {
    const auto label = static_cast<std::size_t>(
        std::get<std::int64_t>(source->value(i++, source->fields()[1].index)));
    EXPECT_EQ(source->classes().at(label), uri.substr(0, uri.find('/')));
  }
}

TYPED_TEST_P(SourceSuite, NamesAnItemThatIsGone) {
  const auto source = this->maker.make(this->items());
  std::uint64_t item = 0;
  while (source->read_uri(item) != this->maker.name("c1/deep/er/x.bin")) ++item;
  this->maker.lose("c1/deep/er/x.bin");
  FetchedItem buffer;
  const Status status = fetch_and_wait(*source, item, buffer);
  EXPECT_EQ(status.code(), TypeParam::kLost);
  EXPECT_NE(status.message().find(this->maker.file("c1/deep/er/x.bin")), std::string::npos)
      << status.message();
}

TYPED_TEST_P(SourceSuite, BringsAPieceOfAnItem) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  const std::vector<PartRequest> requests{{.offset = 3, .size_bytes = 4}, {.offset = 1}};
  FetchedItem buffer;
  FakeSink sink;
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : items) {
    const std::uint64_t item = i++;
    if (bytes.size() < 7) continue;
    const auto state = source->fetch(item, requests, buffer, sink, item);
    ASSERT_TRUE(state) << state.error().message();
    if (*state == FetchState::kPending) {
      ASSERT_TRUE(sink.wait(item).ok());
    }
    const auto text = [&buffer](std::size_t part) {
      const auto span = buffer.part(part);
      return std::string(reinterpret_cast<const char*>(span.data()), span.size());
    };
    EXPECT_EQ(text(0), bytes.substr(3, 4));
    EXPECT_EQ(text(1), bytes.substr(1));
  }
}

TYPED_TEST_P(SourceSuite, NamesEachPartByAKeyOfItsOwn) {
  const auto items = this->items();
  const auto source = this->maker.make(items);
  std::set<std::uint64_t> keys;
  std::uint64_t i = 0;
  for (const auto& [uri, bytes] : items) {
    // Empty parts of one file may lie at one place.
    const std::uint64_t item = i++;
    if (bytes.empty()) continue;
    EXPECT_TRUE(keys.insert(source->part_key(item, 0)).second) << uri;
  }
}

REGISTER_TYPED_TEST_SUITE_P(SourceSuite, ListsEveryItemInBytewiseOrder, BringsEveryItemsBytes,
                            BringsManyItemsAtOnce, BringsAtHandTheSameOrNothing,
                            HasTheSameDigestForTheSameItems,
                            HasAnotherDigestWhenAnItemComesGoesOrIsRenamed,
                            PutsAPartFirstAmongItsFieldsAndNamesEachOnce, LabelsItemsByTheirClass,
                            NamesAnItemThatIsGone, BringsAPieceOfAnItem,
                            NamesEachPartByAKeyOfItsOwn);

}  // namespace spdld::source
