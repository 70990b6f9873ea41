// SPDX-License-Identifier: Apache-2.0
#include "session/new_pipelines.h"

#include <utility>

#include "delivery/device_layout.h"
#include "engine/explain.h"

namespace spdld::session {
namespace {

// Why the daemon can deliver to none of its GPUs; empty: to one it can.
std::string why_no_gpu(const delivery::Devices& devices) {
  if (std::string why = devices.why_none(); !why.empty()) return why;
  std::string why;
  for (const delivery::DeviceFacts& gpu : devices.facts()) {
    if (gpu.why_not.empty()) return {};
    why += (why.empty() ? "" : "; ") + gpu.name + ": " + gpu.why_not;
  }
  return why;
}

}  // namespace

delivery::ArenaShape NewPipelines::arena_shape(const engine::Plan& plan) const {
  const auto credits = static_cast<std::uint32_t>(plan.spec.delivery.prefetch);
  return {.kind = deps_.arena_kind,
          .slot_bytes = plan.layout.slot_bytes(),
          .slot_count = plan.slots_for(credits)};
}

std::optional<engine::PlanFacts::OnGpu> NewPipelines::on_gpu(const engine::Plan& plan) const {
  const spec::DeliverySpec& wanted = plan.spec.delivery;
  if (wanted.device != spec::DeliverySpec::Device::kCuda) return std::nullopt;
  const delivery::DeviceLayout layout(plan.layout.fields(), plan.layout.rows());
  engine::PlanFacts::OnGpu facts{
      .slots = plan.device_slots_for(static_cast<std::uint32_t>(wanted.prefetch)),
      .slot_bytes = layout.device_bytes(),
      .host_bytes = layout.host_bytes(),
      .budget_bytes = deps_.devices.budget_bytes(),
      .or_host = wanted.on_unavailable == spec::DeliverySpec::Unavailable::kHost,
      .why_none = why_no_gpu(deps_.devices)};
  for (const wire::FieldLayout& field : layout.fields()) {
    if ((field.flags & wire::kFieldOnDevice) != 0) facts.fields.emplace_back(field.name);
  }
  return facts;
}

Status NewPipelines::check_fits(const job::Caller& caller, const engine::Plan& plan) const {
  const delivery::ArenaBudget& budget = deps_.budget;
  const delivery::ArenaShape shape = arena_shape(plan);
  const std::uint64_t needed = delivery::arena_bytes(shape);
  if (needed <= budget.limit_bytes(caller.uid)) return {};
  return Status(
      Code::kResourceExhausted,
      "pipeline '" + plan.spec.name + "' does not fit: each consumer needs " +
          delivery::format_bytes(needed) + " (" + std::to_string(shape.slot_count) + " slots of " +
          delivery::format_bytes(shape.slot_bytes) + "), and " +
          (budget.share_bytes(caller.uid) ? "your share of arena.budget is " : "arena.budget is ") +
          delivery::format_bytes(budget.limit_bytes(caller.uid)) +
          "; lower batch.size or delivery.prefetch, or have arena.budget raised in the daemon's "
          "configuration");
}

Result<std::vector<std::string>> NewPipelines::check_fits_gpu(const engine::Plan& plan) const {
  const auto gpu = on_gpu(plan);
  std::vector<std::string> warnings;
  if (!gpu) return warnings;
  if (const std::string no_gpu = engine::no_gpu_text(*gpu); !no_gpu.empty())
    warnings.push_back("pipeline '" + plan.spec.name + "': " + no_gpu);
  if (gpu->fits()) return warnings;
  const std::string why =
      "pipeline '" + plan.spec.name + "' does not fit on a GPU: each consumer needs " +
      delivery::format_bytes(gpu->bytes()) + " there (" + std::to_string(gpu->slots) +
      " slots of " + delivery::format_bytes(gpu->slot_bytes) + "), and cuda.budget is " +
      delivery::format_bytes(gpu->budget_bytes) +
      "; lower batch.size or delivery.prefetch, or have cuda.budget raised in "
      "the daemon's configuration";
  if (!gpu->or_host) return error(Code::kResourceExhausted, why);
  warnings.push_back(why + "; until then its batches lie in main memory");
  return warnings;
}

Result<std::vector<std::string>> NewPipelines::check(
    const job::Caller& caller, const pipeline::PipelinePtr& built, bool makes_batch,
    const pipeline::Catalogue::Progress& progress) {
  std::vector<std::string> nothing;
  SPDLD_ASSIGN(const pipeline::PipelinePtr numbered, deps_.pipelines.numbered(caller.uid, built));
  const pipeline::PipelinePtr current = deps_.pipelines.find(built->id());
  if (current != nullptr && current->version == numbered->version) return nothing;
  SPDLD_TRY(check_fits(caller, *built->plan));
  SPDLD_ASSIGN(std::vector<std::string> warnings, check_fits_gpu(*built->plan));
  if (!makes_batch) return warnings;
  SPDLD_ASSIGN(const RowCallers callers, pipeline::open_callers(deps_.code, *built, caller.uid));
  for (const auto& function : callers) {
    if (built->request.starts_runners || function->wanted().empty()) continue;
    warnings.push_back("pipeline '" + built->name() +
                       "': no first batch was made, as no process runs its functions yet; the "
                       "first rank that reads it starts some, and 'spdlctl apply --python' does");
    return warnings;
  }
  SPDLD_ASSIGN(const std::vector<std::string> found,
               trials_.first_batch(caller.uid, *built, progress));
  warnings.insert(warnings.end(), found.begin(), found.end());
  return warnings;
}

}  // namespace spdld::session
