// SPDX-License-Identifier: Apache-2.0
#include "source/kept/dataset_id.h"

#include <algorithm>
#include <cstddef>

#include "source/bytes/digest_text.h"
#include "source/tar/tar_index_build.h"

namespace spdld::source {
namespace {

constexpr std::string_view kShards = "tar-";
constexpr std::string_view kMedia = "+media-";
constexpr char kBetweenDatasets = '+';
constexpr std::size_t kKeyDigits = 16;
constexpr std::size_t kDataDigits = 32;  // and of the classes' digest

}  // namespace

std::optional<ListedId> parse_listed_id(const std::string& id) {
  constexpr std::size_t kDataEnd = kKeyDigits + 1 + kDataDigits;
  const bool labelled = id.size() == kDataEnd + 1 + kDataDigits;
  if (id.size() != kDataEnd && !labelled) return std::nullopt;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const bool dash = i == kKeyDigits || i == kDataEnd;
    const bool hex = (id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f');
    if (dash ? id[i] != '-' : !hex) return std::nullopt;
  }
  return ListedId{.data = id.substr(0, kDataEnd),
                  .data_digest = id.substr(kKeyDigits + 1, kDataDigits),
                  .classes = labelled ? id.substr(kDataEnd + 1) : ""};
}

std::string listed_id(const std::string& key, const std::string& data_digest) {
  return short_digest_text(key) + "-" + data_digest;
}

std::optional<std::string> shards_name(const std::string& id) {
  if (!id.starts_with(kShards)) return std::nullopt;
  return id.substr(kShards.size());
}

std::string shards_id(const std::string& name) { return std::string(kShards) + name; }

std::string join_datasets(const std::vector<std::string>& ids) {
  std::string joined;
  for (const std::string& id : ids) {
    if (!joined.empty()) joined += kBetweenDatasets;
    joined += id;
  }
  return joined;
}

std::vector<std::string> split_dataset(std::string_view id) {
  std::vector<std::string> ids;
  for (std::size_t begin = 0; begin <= id.size();) {
    const std::size_t end = std::min(id.find(kBetweenDatasets, begin), id.size());
    ids.emplace_back(id.substr(begin, end - begin));
    begin = end + 1;
  }
  return ids;
}

ClipsDataset split_clips_dataset(const std::string& id) {
  const std::size_t at = id.rfind(kMedia);
  if (at == std::string::npos) return {.items = id, .media = {}};
  return {.items = id.substr(0, at), .media = id.substr(at + kMedia.size())};
}

std::string media_dataset(const std::string& media) { return std::string(kMedia) + media; }

std::string clips_dataset(const std::string& items, const std::string& media) {
  return items.empty() || media.empty() ? std::string() : items + media_dataset(media);
}

bool is_same_data(const std::string& id, const std::string& other) {
  const auto name = shards_name(id);
  const auto other_name = shards_name(other);
  if (name && other_name) return same_tar_data(*name, *other_name);
  const auto a = parse_listed_id(id);
  const auto b = parse_listed_id(other);
  return a && b && a->data_digest == b->data_digest && a->classes == b->classes;
}

}  // namespace spdld::source
