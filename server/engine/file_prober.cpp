// SPDX-License-Identifier: Apache-2.0
#include "engine/file_prober.h"

#include <span>
#include <utility>

#include "base/text/printable.h"
#include "media/bytes/byte_reader.h"
#include "media/probe/prober.h"

namespace spdld::engine {
namespace {

class FileReader final : public media::ByteReader {
 public:
  explicit FileReader(source::FileBytes& file) : file_(file) {}

  std::uint64_t size() const override { return file_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
    auto read = file_.read(offset, {reinterpret_cast<char*>(out.data()), out.size()});
    // It names the file already.
    if (!read) own_error_ = true;
    return read;
  }
  bool had_error() const { return own_error_; }

 private:
  source::FileBytes& file_;
  bool own_error_ = false;
};

}  // namespace

Result<MediaFile> FileProber::probe(source::FileBytes& file, std::stop_token stop) const {
  FileReader reader(file);
  Result<MediaFile> found = media::probe(reader, {}, std::move(stop));
  if (found || reader.had_error()) return found;
  return tl::unexpected<Status>(found.error().with_context(printable(file.path())));
}

std::string FileProber::version() const { return media::probe_version(); }

}  // namespace spdld::engine
