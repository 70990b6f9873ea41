// SPDX-License-Identifier: Apache-2.0
#include "source/table/columns_file.h"

#include <xxhash.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "source/bytes/binary.h"
#include "source/bytes/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kColumnsMagic = "SPDLCOL1";

}  // namespace

Status save_columns(const KeptColumns& table, const std::string& path) {
  BinaryWriter out;
  out.raw(kColumnsMagic);
  out.number(table.file.size_bytes);
  out.number(table.file.mtime_ns);
  out.number<std::uint64_t>(table.category_ids.size());
  for (const std::int64_t id : table.category_ids) out.number(id);
  table.columns.write(out);
  out.number<std::uint64_t>(XXH3_64bits(out.text().data(), out.text().size()));
  SPDLD_FAILPOINT_STATUS("source.listing.write");
  return write_whole_file(path, out.text());
}

Result<KeptColumns> load_columns(const std::string& path) {
  SPDLD_ASSIGN(const std::string text, read_whole_file(path));
  const Status damaged(Code::kDataLoss, path + " is damaged: it is not what was written");
  std::uint64_t checksum = 0;
  if (text.size() < kColumnsMagic.size() + sizeof checksum || !text.starts_with(kColumnsMagic))
    return tl::unexpected<Status>(damaged);
  const std::size_t end = text.size() - sizeof checksum;
  std::memcpy(&checksum, text.data() + end, sizeof checksum);
  if (checksum != XXH3_64bits(text.data(), end)) return tl::unexpected<Status>(damaged);
  BinaryReader in(std::string_view(text).substr(kColumnsMagic.size(), end - kColumnsMagic.size()));
  KeptColumns table;
  table.file.size_bytes = in.number<std::uint64_t>();
  table.file.mtime_ns = in.number<std::int64_t>();
  table.category_ids.resize(in.count(sizeof(std::int64_t)));
  for (std::int64_t& id : table.category_ids) id = in.number<std::int64_t>();
  auto columns = Columns::read(in);
  if (!columns || in.left() != 0) return tl::unexpected<Status>(damaged);
  table.columns = *std::move(columns);
  return table;
}

}  // namespace spdld::source
