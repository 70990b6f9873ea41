// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "base/status.h"
#include "pipeline/pipeline_table.h"
#include "session/views.h"

// A view from Sessions has its pipeline's id; these put the caller's own name of it in its place.
namespace spdld::session {

template <typename View>
View shown_to(const pipeline::PipelineTable& table, const job::Caller& caller, View view) {
  view.pipeline = table.name_for(caller.uid, view.pipeline);
  return view;
}

template <typename View>
std::vector<View> shown_to(const pipeline::PipelineTable& table, const job::Caller& caller,
                           std::vector<View> views) {
  for (View& view : views) view = shown_to(table, caller, std::move(view));
  return views;
}

template <typename View>
Result<View> shown_to(const pipeline::PipelineTable& table, const job::Caller& caller,
                      Result<View> view) {
  if (!view) return view;
  return shown_to(table, caller, *std::move(view));
}

}  // namespace spdld::session
