// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session/views.h"
#include "spdld/v1/control.pb.h"

// The daemon itself, its caches and GPUs, and what each user has of it, as messages. Any thread.
namespace spdld::control {

void fill(v1::DataPlane* message, const session::DataPlaneView& view);
void fill(v1::JpegImages* message, const JpegImages& images);
void fill(v1::JpegIndex* message, const session::JpegView& view);
void fill(v1::SampleCache* message, const session::CacheView& view);
void fill(v1::Gpu* message, const session::GpuView& view);
void fill(v1::Daemon* message, const session::DaemonView& view);
void fill(v1::Use* message, const session::Use& use);
void fill(v1::User* message, const session::UserView& view);

}  // namespace spdld::control
