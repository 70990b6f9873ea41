// SPDX-License-Identifier: Apache-2.0
#include "source/file/range_errors.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/descriptors.h"
#include "base/memory/no_memory.h"
#include "source/bytes/path_error.h"
#include "source/file/access.h"

namespace spdld::source {
namespace {

bool is_transient(int err) {
  switch (err) {
    case EIO:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ESTALE:
    case ETIMEDOUT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENETRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ECONNABORTED:
    case ECONNRESET:
    case ECONNREFUSED:
    case ENOTCONN:
    case ESHUTDOWN:
    case EREMOTEIO:
    case ENOMEM: return true;
    case EMFILE:
    case ENFILE: note_descriptor_shortage(err); return true;
    default: return false;
  }
}

// Of a file that a dataset names.
std::string way_out_of_missing(const std::string& path) {
  if (path.find(".tar/") != std::string::npos)
    return "what lies in a tar is not named by a table: source.webdataset reads the samples of "
           "tar shards, or unpack it";
  return "bring it there, or take it out of the dataset";
}

}  // namespace

RangeError range_error(int err, const char* what, const std::string& path, const FileRange& range,
                       const std::string& why) {
  if (err == ENOMEM) {
    Status status = no_memory("the kernel");
    return {true, status.with_context(std::string(what) + " " + path)};
  }
  if (is_transient(err)) {
    return {true, errno_status(err, std::string(what) + " " + path)};
  }
  if (!why.empty()) {
    return {false, Access::status({.err = err, .why = why}, what, path)};
  }
  Status status;
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      // What was never seen is the data's fault, and what goes while it is in use somebody's.
      status = range.listed
                   ? Status(Code::kNotFound, path +
                                                 " is gone since the dataset was listed; restore "
                                                 "it, or apply the pipeline again")
                   : Status(Code::kDataLoss, path + " is not there, though the dataset names it; " +
                                                 way_out_of_missing(path));
      break;
    case ELOOP:
      status = Status(Code::kPermissionDenied,
                      path +
                          " is a symlink that leads back to itself, or one that "
                          "'follow_symlinks: false' forbids; mend or remove it");
      break;
    case EXDEV:
      status = Status(Code::kPermissionDenied,
                      path +
                          " leads by a symlink to where this source may not read; see "
                          "follow_symlinks and access.roots");
      break;
    case EISDIR:
    case ENXIO:  // a socket
      status = Status(Code::kDataLoss, path + " was listed as a file and is none any more");
      break;
    default: status = path_error(err, what, path);
  }
  return {false, std::move(status)};
}

Status not_as_listed(const std::string& path, const FileRange& range, const std::string& how) {
  return {Code::kDataLoss,
          path + how +
              (range.expected ? "; bring it back as it was, or apply the pipeline again, "
                                "which indexes it anew ('spdlctl index' does that "
                                "ahead of it)"
                              : "; leave a dataset as it is while it is in use")};
}

std::string changed_text(const ItemStamp& listed, const ItemStamp& now) {
  const auto text = [](const ItemStamp& stamp) {
    const std::time_t seconds = stamp.mtime_ns / 1'000'000'000;
    std::tm time{};
    char date[32] = "";
    if (::gmtime_r(&seconds, &time) != nullptr)
      std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &time);
    char fraction[16];
    std::snprintf(fraction, sizeof fraction, ".%03d",
                  static_cast<int>(stamp.mtime_ns % 1'000'000'000 / 1'000'000));
    return std::to_string(stamp.size_bytes) + " bytes of " + date + fraction + " UTC";
  };
  return " has changed since it was indexed: " + text(listed) + " then, " + text(now) + " now";
}

}  // namespace spdld::source
