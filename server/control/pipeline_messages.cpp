// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

std::string_view kind_name(FieldKind kind) {
  switch (kind) {
    case FieldKind::kDense: return "dense";
    case FieldKind::kRagged: return "ragged";
    case FieldKind::kBytes: return "bytes";
  }
  return "unknown";
}

}  // namespace

Result<job::ApplyRequest> apply_request(const v1::PipelineText& text, bool dry_run) {
  if (text.yaml().empty())
    return error(Code::kInvalidArgument,
                 "the request holds no pipeline: send its YAML as text.yaml");
  const std::string& file = text.file();
  if (!file.empty() && file != "-" && file[0] != '/') {
    return error(Code::kInvalidArgument,
                 fmt::format("file '{}' is relative, and the daemon cannot know to what: send its "
                             "absolute path, or '-' for a text without a file",
                             file));
  }
  job::ApplyRequest request;
  request.yaml = text.yaml();
  request.file = file.empty() ? "-" : file;
  request.vars.insert(text.vars().begin(), text.vars().end());
  request.env.insert(text.env().begin(), text.env().end());
  request.dry_run = dry_run;
  request.starts_runners = text.starts_runners();
  return request;
}

void fill(v1::Tensor* message, const TensorSpec& spec) {
  message->set_name(utf8(spec.name));
  message->set_kind(std::string(kind_name(spec.kind)));
  message->set_dtype(std::string(dtype_name(spec.dtype)));
  for (const std::int64_t extent : spec.shape) message->add_shape(extent);
  message->set_text(spec.text);
}

void fill(v1::Pipeline* message, const session::PipelineView& view) {
  message->set_name(utf8(view.name));
  message->set_version(view.version);
  message->set_owner(view.owner);
  message->set_state(view.state);
  message->set_error(utf8(view.error));
  message->set_indexed(view.indexed);
  message->set_items(view.items);
  message->set_classes(view.classes);
  message->set_order_digest(view.order_digest);
  message->set_content_digest(view.content_digest);
  message->set_batch_size(view.batch_size);
  for (const TensorSpec& tensor : view.tensors) fill(message->add_tensors(), tensor);
  message->set_jobs(view.jobs);
  for (const session::StayingJob& job : view.staying) {
    v1::StayingJob* out = message->add_staying();
    out->set_job(utf8(job.job));
    out->set_version(job.version);
  }
  for (const std::string& warning : view.warnings) message->add_warnings(utf8(warning));
}

void fill(v1::Revision* message, const session::RevisionView& view) {
  message->set_version(view.version);
  message->set_applied_unix_ms(view.applied_unix_ms);
  message->set_applied_by(view.applied_by);
  message->set_content_digest(view.content_digest);
  message->set_note(utf8(view.note));
  message->set_jobs(view.jobs);
  message->set_current(view.current);
}

void fill(v1::PreviewHeader* message, const pipeline::PreviewView& view) {
  for (const TensorSpec& tensor : view.tensors) fill(message->add_tensors(), tensor);
  for (const auto& data : view.data) message->add_tensor_bytes(data.size());
  for (const std::int64_t index : view.indices) message->add_indices(index);
  for (const std::string& uri : view.uris) message->add_uris(utf8(uri));
  for (const bool valid : view.valid) message->add_valid(valid);
  for (const std::string& name : view.classes) message->add_classes(utf8(name));
  for (const std::string& stages : view.made_by) message->add_made_by(utf8(stages));
  for (std::size_t i = 0; i < view.packed.size(); ++i) {
    v1::PreviewRows& rows = *message->add_packed();
    rows.mutable_begins()->Add(view.packed[i].begins.begin(), view.packed[i].begins.end());
    rows.mutable_shapes()->Add(view.packed[i].shapes.begin(), view.packed[i].shapes.end());
    rows.set_text(view.tensors[i].text);
  }
}

}  // namespace spdld::control
