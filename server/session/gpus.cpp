// SPDX-License-Identifier: Apache-2.0
#include "session/gpus.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace spdld::session {
namespace {

using spec::DeliverySpec;

const spec::PipelineSpec& spec_of(const pipeline::Phase& phase) { return phase.run->plan().spec; }

bool has_gpu(const Session& session) {
  return (session.consumer == nullptr ? session.gpu : session.consumer->gpu()) != nullptr;
}

Result<delivery::DeviceMemoryPtr> open_named(delivery::Devices& devices, const Session& session) {
  if (!session.device.empty()) return devices.open(session.device);
  // Advice about the loader would lead nowhere.
  if (const std::string why = devices.why_none(); !why.empty())
    return error(Code::kFailedPrecondition, "the daemon cannot use GPUs: " + why);
  return error(Code::kFailedPrecondition, "it names none; open it with device=\"cuda\"");
}

Status refusal(const pipeline::Phase& phase, const Status& why) {
  return Status(
      why.code(),
      "pipeline '" + spec_of(phase).name +
          "' delivers to GPUs, and this loader's batches cannot lie there: " + why.message() +
          "; 'delivery: {device: cpu}' leaves copies to the loader, and "
          "'on_unavailable: host' takes main memory where there is no other way");
}

}  // namespace

bool delivers_to_gpus(const pipeline::Phase& phase) {
  if (spec_of(phase).delivery.device != DeliverySpec::Device::kCuda) return false;
  const auto& fields = phase.run->plan().layout.fields();
  return std::any_of(fields.begin(), fields.end(), wire::goes_to_device);
}

bool may_stay_in_main_memory(const pipeline::Phase& phase) {
  return spec_of(phase).delivery.on_unavailable == DeliverySpec::Unavailable::kHost;
}

std::string in_main_memory_text(const pipeline::Phase& phase, const std::string& why,
                                bool has_device) {
  return "pipeline '" + spec_of(phase).name +
         "' delivers to GPUs, and this loader's batches lie in main memory: " + why +
         (has_device ? "; this loader" : "; one with device=") + " copies them to its GPU itself";
}

bool has_opened_gpu(const Session& session, const pipeline::Phase& phase) {
  return !delivers_to_gpus(phase) || has_gpu(session) ||
         (session.gpu_sought && may_stay_in_main_memory(phase));
}

Status GpuOpener::open_for(const SessionPtr& session, const pipeline::Phase& phase) {
  if (!delivers_to_gpus(phase)) return {};
  {
    MutexLock lock(table_.mutex());
    if (has_gpu(*session)) return {};
  }
  auto gpu = open_named(devices_, *session);
  if (!gpu && !may_stay_in_main_memory(phase)) return refusal(phase, gpu.error());
  const std::string warning =
      gpu ? std::string()
          : in_main_memory_text(phase, gpu.error().message(), !session->device.empty());
  if (!warning.empty()) spdlog::warn("session {}: {}", session->id, warning);
  MutexLock lock(table_.mutex());
  session->gpu_sought = true;
  if (session->consumer == nullptr) {
    session->gpu = gpu ? *std::move(gpu) : nullptr;
    session->gpu_warning = warning;
  } else if (gpu) {
    session->consumer->read_on(*std::move(gpu));
  } else {
    session->connection->send_notice(warning);
  }
  return {};
}

Status GpuOpener::open(const SessionPtr& session) {
  std::vector<pipeline::PhasePtr> phases;
  {
    MutexLock lock(table_.mutex());
    phases = session->job->phases();
  }
  for (const pipeline::PhasePtr& phase : phases) SPDLD_TRY(open_for(session, *phase));
  return {};
}

Status GpuOpener::open(const SessionPtr& session, const pipeline::Phase& phase) {
  return open_for(session, phase)
      .with_context("session " + std::to_string(session->id) + " (" + session->process() + ")");
}

Status GpuOpener::open_all(const JobPtr& job, const pipeline::Phase& phase) {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(table_.mutex());
    for (const auto& [member, session] : job->members) sessions.push_back(session);
  }
  for (const SessionPtr& session : sessions) SPDLD_TRY(open(session, phase));
  return {};
}

}  // namespace spdld::session
