// SPDX-License-Identifier: Apache-2.0
#include "delivery/runners/call_text.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace spdld::delivery {
namespace {

const char* kind_name(CallField::Kind kind) {
  switch (kind) {
    case CallField::Kind::kArray: return "array";
    case CallField::Kind::kBytes: return "bytes";
    case CallField::Kind::kText: return "text";
    case CallField::Kind::kInt64: return "int64";
    case CallField::Kind::kFloat64: return "float64";
    case CallField::Kind::kBool: return "bool";
  }
  return "";
}

nlohmann::ordered_json fields_json(const std::vector<CallField>& fields) {
  auto all = nlohmann::ordered_json::array();
  for (const CallField& field : fields) {
    all.push_back({{"name", field.name},
                   {"kind", kind_name(field.kind)},
                   {"dtype", std::string(dtype_name(field.dtype))},
                   {"shape", field.shape},
                   {"max_bytes", field.max_bytes},
                   {"optional", field.optional}});
  }
  return all;
}

}  // namespace

std::string pool_json(const CallSpec& spec) {
  const nlohmann::ordered_json json{{"call", spec.call},
                                    {"dataset", spec.is_dataset},
                                    {"args", spec.args},
                                    {"version", spec.version},
                                    {"in", fields_json(spec.in)},
                                    {"out", fields_json(spec.out)},
                                    {"children", spec.concurrency},
                                    {"timeout_ms", spec.timeout.count()},
                                    {"max_rss", spec.max_rss},
                                    {"spawn", spec.spawn}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string pool_key(uid_t uid, const CallSpec& spec, unsigned again) {
  const std::string text = fmt::format("{} {} {}", uid, again, pool_json(spec));
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace spdld::delivery
