// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "delivery/data_service.h"
#include "delivery/frames.h"
#include "delivery/handshake.h"

namespace spdld::delivery {

// What one consumer says, frame by frame: checked, in its turn, and passed on to the service. Owned
// by the data server, one for each connection; the dispatcher's thread alone. What take() refuses
// ends the connection; take_last() hears whom we have ended.
class Dialogue {
 public:
  // What the daemon says of itself.
  struct Host {
    std::string server_name;
    std::array<std::uint8_t, 16> generation;
  };

  // `service` outlives it.
  Dialogue(ConnectionPtr connection, DataService& service, Host host,
           std::shared_ptr<UserBytes::Share> unattached)
      : connection_(std::move(connection)),
        service_(service),
        host_(std::move(host)),
        handshake_(std::move(unattached)) {}

  Status take(std::span<const std::byte> frame);
  void take_last(std::span<const std::byte> frame);
  // The service hears of a Detach that came too late to be served.
  void hung_up();

  bool attached() const { return handshake_.done(); }  // the service has seen attach()
  bool detached() const { return detached_; }          // it hangs up after its last lease

 private:
  Status greet(const Hello& hello);
  void serve(const Request& request);

  ConnectionPtr connection_;
  DataService& service_;
  Host host_;
  Handshake handshake_;
  bool detached_ = false;
  bool told_ = false;  // the service, of that
};

}  // namespace spdld::delivery
