// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "tests/unit/control/temp_socket.h"

namespace spdld::control {

// A gRPC channel of its own over a new connection to the Unix socket at `path`.
inline std::shared_ptr<grpc::Channel> channel_to(const std::string& path) {
  UniqueFd fd = connect_to(path);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomInsecureChannelFromFd("spdld", fd.release(), arguments);
}

}  // namespace spdld::control
