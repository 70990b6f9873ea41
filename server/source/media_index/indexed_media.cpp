// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/indexed_media.h"

#include <string>

#include "base/memory/no_memory.h"

namespace spdld::source {

Status IndexedMedia::compare(std::uint64_t number, FileBytes& file) const {
  const Result<MediaFile> media = prober_.probe(file, {});
  // Codecs have the numbers that they have in the index, which come from their texts.
  CodecPool codecs;
  const Result<std::string> text =
      media ? media_record_text(*media, codecs) : tl::unexpected<Status>(media.error());
  if (!text && text.error().code() == kNoMemory) return text.error();
  if (!text) return {Code::kDataLoss, "it holds something else by now: " + text.error().message()};
  if (*text != index_->entries()[number].text)
    return {Code::kDataLoss, "it holds other streams by now, or their packets lie elsewhere"};
  return {};
}

}  // namespace spdld::source
