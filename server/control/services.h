// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "control/call.h"

namespace spdld::control {

// The gRPC services of control.proto; `environment` outlives them.
std::unique_ptr<grpc::Service> make_pipelines(const Environment& environment);
std::unique_ptr<grpc::Service> make_jobs(const Environment& environment);
std::unique_ptr<grpc::Service> make_sessions(const Environment& environment);
std::unique_ptr<grpc::Service> make_stats(const Environment& environment);

}  // namespace spdld::control
