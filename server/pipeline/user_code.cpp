// SPDX-License-Identifier: Apache-2.0
#include "pipeline/user_code.h"

#include <fmt/format.h>

#include "base/users/credentials.h"

namespace spdld::pipeline {
namespace {

// Who applied it; what the daemon's configuration has counts as root's.
uid_t author_of(const PipelineVersion& pipeline, const UserCode& code) {
  const auto& reader = pipeline.request.reader;
  if (!reader) return pipeline.owner.uid;
  if (reader->uid == Credentials::kDaemon && code.trusts_root) return 0;
  return shown_uid(reader->uid);
}

}  // namespace

Status check_author(const UserCode& code, const PipelineVersion& pipeline, uid_t user) {
  if (pipeline.plan->calls.empty()) return {};
  const std::string& call = pipeline.plan->calls.front().spec.call;
  if (user == Credentials::kUnmapped)
    return Status(Code::kPermissionDenied,
                  fmt::format("pipeline '{}' calls {}, and the daemon cannot tell whose process "
                              "this is: its user has no number outside its user namespace",
                              pipeline.name(), call));
  const uid_t author = author_of(pipeline, code);
  if (author == user) return {};
  if (author == 0 && code.trusts_root) {
    if (!pipeline.plan->spec.is_extended) return {};
    return Status(
        Code::kPermissionDenied,
        fmt::format("pipeline '{}' calls {}, and extends other files, which may be others "
                    "by now than root has read: it runs for root alone, until it is "
                    "applied as one file",
                    pipeline.name(), call));
  }
  return Status(Code::kPermissionDenied,
                fmt::format("pipeline '{}' calls {}, uid {} applied it, and functions run as "
                            "uid {} only if that user or root applied them: apply the pipeline "
                            "yourself, under a name of your own",
                            pipeline.name(), call, author, user));
}

Result<RowCallers> open_callers(const UserCode& code, const PipelineVersion& pipeline, uid_t user) {
  RowCallers callers;
  SPDLD_TRY(check_author(code, pipeline, user));
  for (const engine::PlannedCall& call : pipeline.plan->calls)
    callers.push_back(code.open(user, call.spec));
  return callers;
}

}  // namespace spdld::pipeline
