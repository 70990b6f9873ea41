// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cerrno>
#include <system_error>

#include "base/descriptors.h"

namespace spdld {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kCancelled: return "CANCELLED";
    case Code::kUnknown: return "UNKNOWN";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kAlreadyExists: return "ALREADY_EXISTS";
    case Code::kPermissionDenied: return "PERMISSION_DENIED";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
    case Code::kAborted: return "ABORTED";
    case Code::kOutOfRange: return "OUT_OF_RANGE";
    case Code::kUnimplemented: return "UNIMPLEMENTED";
    case Code::kInternal: return "INTERNAL";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kDataLoss: return "DATA_LOSS";
  }
  return "UNKNOWN";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_);
}

Status errno_status(int err, std::string_view what) {
  note_descriptor_shortage(err);
  Code code = Code::kUnknown;
  switch (err) {
    case ENOENT:
    case ENOTDIR: code = Code::kNotFound; break;
    case EACCES:
    case EPERM:
    case EROFS: code = Code::kPermissionDenied; break;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE: code = Code::kResourceExhausted; break;
    case EEXIST:
    case EADDRINUSE: code = Code::kAlreadyExists; break;
    case EAGAIN:
    case EIO:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ESTALE:
    case ETIMEDOUT: code = Code::kUnavailable; break;
    case EINVAL:
    case ENAMETOOLONG: code = Code::kInvalidArgument; break;
    default: break;
  }
  return Status(code, std::string(what) + ": " + std::generic_category().message(err));
}

}  // namespace spdld
