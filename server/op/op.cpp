// SPDX-License-Identifier: Apache-2.0
#include "op/op.h"

#include "op/audio.h"

namespace spdld {

Status DecodeImageOp::plan(FieldTable& table, const StageKey& key, std::string&) const {
  auto field = table.encoded(fields().front(), key.name);
  if (!field) return std::move(field).error();
  (*field)->chain = table.make_image_chain()(*this, table.request(**field), key.text);
  (*field)->kind = Field::Kind::kDecoded;
  return {};
}

Status GeometryOp::plan(FieldTable& table, const StageKey& key, std::string&) const {
  const auto fields = table.with_geometry(this->fields(), key.name);
  if (!fields) return fields.error();
  for (Field* const field : *fields) SPDLD_TRY(field->chain->append(*this, key));
  return {};
}

Status PixelOp::plan(FieldTable& table, const StageKey& key, std::string& doubt) const {
  const auto fields = table.images(this->fields(), key.name);
  if (!fields) return fields.error();
  for (Field* const field : *fields) SPDLD_TRY(field->chain->append(*this, key, doubt));
  return {};
}

Status AudioOp::plan(FieldTable& table, const StageKey& key, std::string&) const {
  const auto fields = table.sounds(this->fields(), key.name);
  if (!fields) return fields.error();
  for (Field* const field : *fields) SPDLD_TRY(field->chain->append(*this, key));
  return {};
}

}  // namespace spdld
