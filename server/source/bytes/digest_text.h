// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace spdld::source {

// The bytes' XXH3 of 128 bits: 32 hex digits. Stands in users' cursors and in file names.
std::string digest_text(std::string_view bytes);

// That of 64 bits: 16 hex digits.
std::string short_digest_text(std::string_view bytes);

// digest_text() of bytes that come one after the other.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();

  void add(std::string_view bytes);
  // `mixed_in` makes another digest of the same bytes.
  std::string finish(std::uint64_t mixed_in = 0) const;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace spdld::source
