// SPDX-License-Identifier: Apache-2.0
#include "pipeline/user_code.h"

#include <fmt/format.h>

#include "base/users/credentials.h"
#include "pipeline/pipeline_version.h"

namespace spdld::pipeline {
namespace {

// Who applied it; what the daemon's configuration has counts as root's.
uid_t author_of(const Authored& text, const UserCode& code) {
  const auto& reader = text.request.reader;
  if (!reader) return text.owner;
  if (reader->uid == Credentials::kDaemon && code.trusts_root) return 0;
  return shown_uid(reader->uid);
}

Status check(const UserCode& code, const Authored& text, const CallSpec& call, uid_t user) {
  const auto denied = [&](const std::string& why) {
    return Status(Code::kPermissionDenied,
                  fmt::format("pipeline '{}' calls {}, {}", text.spec.name, call.call, why));
  };
  if (user == Credentials::kUnmapped)
    return denied(
        "and the daemon cannot tell whose process this is: its user has no number outside its user "
        "namespace");
  const uid_t author = author_of(text, code);
  if (author == user) return {};
  if (author == 0 && code.trusts_root) {
    if (!text.spec.is_extended) return {};
    return denied(
        "and extends other files, which may be others by now than root has read: it runs for root "
        "alone, until it is applied as one file");
  }
  return denied(fmt::format(
      "uid {} applied it, and functions run as uid {} only if that user or root applied them: "
      "apply the pipeline yourself, under a name of your own",
      author, user));
}

Authored authored(const PipelineVersion& pipeline) {
  return {.spec = pipeline.plan->spec, .owner = pipeline.owner.uid, .request = pipeline.request};
}

}  // namespace

Result<std::shared_ptr<RowCaller>> open_caller(const UserCode& code, const Authored& text,
                                               const CallSpec& call, uid_t user) {
  SPDLD_TRY(check(code, text, call, user));
  return code.open(user, call);
}

Status check_author(const UserCode& code, const PipelineVersion& pipeline, uid_t user) {
  if (pipeline.plan->calls.empty()) return {};
  return check(code, authored(pipeline), pipeline.plan->calls.front().spec, user);
}

Result<RowCallers> open_callers(const UserCode& code, const PipelineVersion& pipeline, uid_t user) {
  RowCallers callers;
  for (const engine::PlannedCall& call : pipeline.plan->calls) {
    SPDLD_ASSIGN(callers.emplace_back(), open_caller(code, authored(pipeline), call.spec, user));
  }
  return callers;
}

}  // namespace spdld::pipeline
