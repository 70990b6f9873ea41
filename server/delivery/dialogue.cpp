// SPDX-License-Identifier: Apache-2.0
#include "delivery/dialogue.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <variant>

#include "base/failpoint.h"

namespace spdld::delivery {
namespace {

Status out_of_turn(std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("{} out of turn", what));
}

}  // namespace

Status Dialogue::take(std::span<const std::byte> frame) {
  SPDLD_ASSIGN(Request request, parse_request(frame));
  if (const auto* release = std::get_if<ReleaseRequest>(&request)) {
    if (!attached()) return out_of_turn("Release");
    SPDLD_FAILPOINT("delivery.release");
    service_.release(*connection_, release->lease);
    return {};
  }
  if (connection_->ending()) {
    take_last(frame);
    return {};
  }
  if (const auto* hello = std::get_if<Hello>(&request)) return greet(*hello);
  if (const auto* part = std::get_if<BlobPart>(&request)) return handshake_.append(*part);
  if (auto* wanted = std::get_if<AttachRequest>(&request)) {
    SPDLD_ASSIGN(AttachRequest whole, handshake_.attach(std::move(*wanted)));
    service_.attach(connection_, std::move(whole));
    return {};
  }
  if (detached_) return out_of_turn("a request (after Detach)");
  if (!attached()) return out_of_turn("a request (before Attach)");
  serve(request);
  return {};
}

// Too late for all but the word about the leases that it has.
void Dialogue::take_last(std::span<const std::byte> frame) {
  const auto request = parse_request(frame);
  if (request && attached() && std::holds_alternative<DetachRequest>(*request)) detached_ = true;
}

Status Dialogue::greet(const Hello& hello) {
  SPDLD_TRY(handshake_.greet(hello, host_.server_name));
  connection_->welcome(hello.client, host_.generation, host_.server_name);
  return {};
}

void Dialogue::serve(const Request& request) {
  if (const auto* seek = std::get_if<SeekRequest>(&request)) {
    service_.seek(*connection_, *seek);
  } else if (const auto* handed = std::get_if<HandedNotice>(&request)) {
    service_.handed(*connection_, *handed);
  } else if (const auto* query = std::get_if<QueryRequest>(&request)) {
    service_.query(*connection_, *query);
  } else if (const auto* wish = std::get_if<ApplyWish>(&request)) {
    service_.apply(*connection_, *wish);
  } else if (const auto* notice = std::get_if<WaitedNotice>(&request)) {
    service_.waited(*connection_, *notice);
  } else {
    detached_ = told_ = true;
    service_.detach(*connection_);
  }
}

void Dialogue::hung_up() {
  if (detached_ && !std::exchange(told_, true)) service_.detach(*connection_);
}

}  // namespace spdld::delivery
