// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/digest_text.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"

namespace spdld::source {
namespace {

std::string hex(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string digest_text(std::string_view bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string short_digest_text(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

struct DigestBuilder::State {
  XXH3_state_t* const xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

DigestBuilder::DigestBuilder() : state_(std::make_unique<State>()) {
  SPDLD_CHECK(state_->xxh != nullptr);
  XXH3_128bits_reset(state_->xxh);
}

DigestBuilder::~DigestBuilder() = default;

void DigestBuilder::add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string DigestBuilder::finish(std::uint64_t mixed_in) const {
  XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  hash.low64 ^= mixed_in;
  return hex(hash);
}

}  // namespace spdld::source
