// SPDX-License-Identifier: Apache-2.0
// Which consumers read on a GPU: those that name one, of pipelines that deliver there.
#include <utility>

#include "session/sessions.h"

namespace spdld::session {
namespace {

using spec::DeliverySpec;

bool delivers_to_gpus(const Phase& phase) {
  return phase.run->plan().spec.delivery.device == DeliverySpec::Device::kCuda;
}

bool may_stay_in_main_memory(const Phase& phase) {
  return phase.run->plan().spec.delivery.on_unavailable == DeliverySpec::Unavailable::kHost;
}

std::string in_main_memory(const Phase& phase, const std::string& why) {
  return "pipeline '" + phase.run->plan().spec.name +
         "' delivers to GPUs, and this loader's batches lie in main memory: " + why;
}

}  // namespace

Status Sessions::open_gpu(const SessionPtr& session, const Phase& phase) {
  if (!delivers_to_gpus(phase)) return {};
  std::string uuid;
  {
    MutexLock lock(mutex_);
    if (session->gpu != nullptr) return {};
    uuid = session->device;
  }
  Result<delivery::DeviceMemoryPtr> gpu = nullptr;
  std::string why;
  if (uuid.empty()) {
    why = "it names none; open it with device=\"cuda\"";
  } else {
    gpu = deps_.devices.open(uuid);
    if (!gpu) why = gpu.error().message();
  }
  if (!gpu && !may_stay_in_main_memory(phase))
    return Status(gpu.error().code(),
                  "pipeline '" + phase.run->plan().spec.name + "' delivers to GPUs: " + why +
                      "; 'delivery: {device: cpu}' leaves copies to the loader, and "
                      "'on_unavailable: host' takes main memory where there is no other way");
  MutexLock lock(mutex_);
  session->gpu = gpu ? *std::move(gpu) : nullptr;
  session->gpu_warning = why.empty() ? std::string() : in_main_memory(phase, why);
  return {};
}

Status Sessions::open_gpu(const SessionPtr& session) {
  std::vector<PhasePtr> phases;
  {
    MutexLock lock(mutex_);
    for (const Timeline::Cut& cut : session->job->timeline.cuts()) phases.push_back(cut.phase);
  }
  for (const PhasePtr& phase : phases) SPDLD_TRY(open_gpu(session, *phase));
  return {};
}

Status Sessions::open_gpus(const JobPtr& job, const Phase& phase) {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    for (const auto& [member, session] : job->members) sessions.push_back(session);
  }
  for (const SessionPtr& session : sessions) {
    SPDLD_TRY(open_gpu(session, phase));
    MutexLock lock(mutex_);
    if (session->consumer == nullptr) continue;
    session->consumer->read_on(session->gpu);
    if (delivers_to_gpus(phase) && !session->gpu_warning.empty())
      session->connection->send_notice(session->gpu_warning);
  }
  return {};
}

Result<std::shared_ptr<Consumer>> Sessions::connect_anywhere(
    Session& session, const delivery::AttachRequest& request) {
  auto consumer = connect(session, request);
  const Phase& phase = *session.job->timeline.last_phase();
  if (consumer || session.gpu == nullptr || !may_stay_in_main_memory(phase) ||
      consumer.error().code() != Code::kResourceExhausted)
    return consumer;
  session.gpu = nullptr;
  session.gpu_warning = in_main_memory(phase, consumer.error().message());
  return connect(session, request);
}

}  // namespace spdld::session
