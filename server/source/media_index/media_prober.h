// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"
#include "op/media.h"
#include "source/bytes/file_bytes.h"

namespace spdld::source {

// Tells what a media file holds, by reading what its container says of its packets and decoding
// nothing. engine/file_prober.h implements it by media/'s probe; sources get it by their options.
// Any thread.
class MediaProber {
 public:
  virtual ~MediaProber() = default;

  // The streams that can be decoded. Blocks while `file` does. Errors are the file's: kDataLoss
  // (damaged), kInvalidArgument (nothing that is read), kResourceExhausted (over a limit); those of
  // reading it as they are; kCancelled once `stop` is asked for.
  virtual Result<MediaFile> probe(FileBytes& file, std::stop_token stop) const = 0;
  // The findings depend on this text and the file alone: it names the versions of the libraries
  // that read files, and the limits. What was found under another text is probed again.
  virtual std::string version() const = 0;
};

}  // namespace spdld::source
