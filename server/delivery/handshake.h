// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/users/user_bytes.h"
#include "delivery/frames.h"

namespace spdld::delivery {

// What a consumer says before it is served: Hello, the parts of its pipeline's YAML if it sends
// one, Attach; each in its turn. Owned by the data server, one for each connection; the
// dispatcher's thread alone. Whatever is refused ends the connection.
//
//   kHello --greet--> kAttach --attach--> kDone
//                      | ^ append
//                      +-+
class Handshake {
 public:
  // `share`: what the user's pipelines may take until their attaches are answered.
  explicit Handshake(std::shared_ptr<UserBytes::Share> share) : share_(std::move(share)) {}

  bool done() const { return stage_ == Stage::kDone; }

  // Refuses every build but of wire::kProtocol alone. `server_name` is for the message.
  Status greet(const Hello& hello, const std::string& server_name);
  // kUnavailable: the user's other attaches take all that is allowed; trying again helps.
  Status append(const BlobPart& part);
  // The request with the YAML that came before it.
  Result<AttachRequest> attach(AttachRequest request);

 private:
  enum class Stage { kHello, kAttach, kDone };

  Stage stage_ = Stage::kHello;
  std::shared_ptr<UserBytes::Share> share_;  // goes with the request
  std::string yaml_;                         // as far as it has come
  std::uint32_t serial_ = 0;
  std::uint32_t total_bytes_ = 0;
};

}  // namespace spdld::delivery
