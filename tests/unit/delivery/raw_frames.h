// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "spdld/wire.h"

// A consumer's frames made by hand, so that they can be wrong.
namespace spdld::test {

using Bytes = std::vector<std::byte>;

inline void set_length(Bytes& frame) {
  const auto length = static_cast<std::uint32_t>(frame.size());
  std::memcpy(frame.data() + 4, &length, sizeof length);
}

template <typename T>
Bytes bytes_of(T frame, wire::FrameType type) {
  frame.header = {type, sizeof frame};
  Bytes bytes(sizeof frame);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  return bytes;
}

inline Bytes hello_bytes(std::uint32_t min, std::uint32_t max) {
  wire::HelloFrame hello{};
  hello.magic = wire::kWireMagic;
  hello.protocol_min = min;
  hello.protocol_max = max;
  std::strcpy(hello.client, "raw 1.0");
  return bytes_of(hello, wire::FrameType::kHello);
}

inline wire::AttachFrame attach_fixed() {
  wire::AttachFrame frame{};
  frame.shard = -1;
  frame.num_shards = -1;
  frame.replicas = 1;
  frame.batch_size = -1;
  return frame;
}

inline void append_text(Bytes& frame, wire::TextKey key, const std::string& text) {
  const wire::TextHeader header{key, static_cast<std::uint32_t>(text.size())};
  const std::size_t at = frame.size();
  frame.resize(at + sizeof header + (text.size() + 3) / 4 * 4);
  std::memcpy(frame.data() + at, &header, sizeof header);
  std::memcpy(frame.data() + at + sizeof header, text.data(), text.size());
}

inline Bytes attach_bytes(wire::AttachFrame fixed,
                          const std::vector<std::pair<wire::TextKey, std::string>>& texts) {
  if (fixed.text_count == 0) fixed.text_count = static_cast<std::uint32_t>(texts.size());
  Bytes frame = bytes_of(fixed, wire::FrameType::kAttach);
  for (const auto& [key, text] : texts) append_text(frame, key, text);
  set_length(frame);
  return frame;
}

}  // namespace spdld::test
