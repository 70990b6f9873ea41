// SPDX-License-Identifier: Apache-2.0
#include "delivery/handshake.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace spdld::delivery {
namespace {

Status out_of_turn(const char* frame) {
  return Status(Code::kInvalidArgument, fmt::format("{} out of turn", frame));
}

// "data protocol 2", "data protocols 1 to 4".
std::string protocols_text(std::uint32_t min, std::uint32_t max) {
  if (min == max) return fmt::format("data protocol {}", min);
  return fmt::format("data protocols {} to {}", min, max);
}

}  // namespace

Status Handshake::greet(const Hello& hello, const std::string& server_name) {
  if (stage_ != Stage::kHello) return out_of_turn("Hello");
  if (hello.protocol_min != wire::kProtocol || hello.protocol_max != wire::kProtocol) {
    return Status(
        Code::kFailedPrecondition,
        fmt::format("{} speaks {}, and the daemon {} speaks {}: install the same build of spdld "
                    "for both",
                    hello.client.empty() ? "the client" : hello.client,
                    protocols_text(hello.protocol_min, hello.protocol_max), server_name,
                    protocols_text(wire::kProtocol, wire::kProtocol)));
  }
  stage_ = Stage::kAttach;
  return {};
}

Status Handshake::append(const BlobPart& part) {
  if (stage_ != Stage::kAttach) return out_of_turn("Blob");
  if (part.offset == 0) {
    // The whole text at once: texts that each wait for room for their rest would wait for ever.
    share_->remove(share_->bytes());
    if (!share_->add(part.total_bytes)) {
      return Status(Code::kUnavailable,
                    fmt::format("a pipeline of {} bytes: with it, attaches of this user that are "
                                "not answered yet would take more than the {} bytes that "
                                "limits.unattached allows; try again",
                                part.total_bytes, share_->limit()));
    }
    yaml_ = {};
    serial_ = part.serial;
    total_bytes_ = part.total_bytes;
  }
  if (part.offset != yaml_.size() || part.serial != serial_ || part.total_bytes != total_bytes_) {
    return Status(Code::kInvalidArgument, "Blob frame: its parts do not follow each other");
  }
  yaml_.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  return {};
}

Result<AttachRequest> Handshake::attach(AttachRequest request) {
  if (stage_ != Stage::kAttach) return tl::unexpected(out_of_turn("Attach"));
  if (yaml_.size() != total_bytes_ || request.blob_bytes != total_bytes_) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               fmt::format("Attach frame: {} bytes of YAML were announced, and {} came",
                           request.blob_bytes, yaml_.size())));
  }
  request.pipeline_yaml = std::exchange(yaml_, {});
  request.share = std::move(share_);
  stage_ = Stage::kDone;
  return request;
}

}  // namespace spdld::delivery
