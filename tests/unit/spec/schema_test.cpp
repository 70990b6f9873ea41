// SPDX-License-Identifier: Apache-2.0
#include "spec/schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

using Json = nlohmann::json;

TEST(Schema, HoldsKeysDocsBoundsAndDefaultsOfTheTables) {
  const Json schema = pipeline_schema(fake_registry());
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.at("additionalProperties"), false);
  const Json& batch = schema.at("properties").at("batch");
  const Json& size = batch.at("properties").at("size");
  EXPECT_EQ(size.at("description"), "rows of one batch of one shard");
  EXPECT_EQ(size.at("anyOf").at(0),
            (Json{{"type", "integer"}, {"minimum", 1}, {"maximum", 65536}}));
  EXPECT_EQ(batch.at("properties").at("last").at("default"), "drop");
  EXPECT_EQ(batch.at("properties").at("last").at("anyOf").at(0).at("enum"),
            Json::array({"drop", "pad", "keep"}));
}

TEST(Schema, HoldsEveryOpWithItsParameters) {
  const Json schema = pipeline_schema(fake_registry());
  const Json& stage = schema.at("properties").at("stages").at("items").at("anyOf");
  EXPECT_EQ(stage.at(0).at("enum"), Json::array({"fetch", "resize", "scale"}));
  const Json& resize = stage.at(1).at("properties").at("resize");
  EXPECT_EQ(resize.at("description"), "Resizes.");
  const Json& map = resize.at("anyOf").at(0);
  EXPECT_EQ(map.at("required"), Json::array({"size"}));
  for (const char* param : {"size", "interpolation", "max_size", "antialias", "concurrency"}) {
    EXPECT_TRUE(map.at("properties").contains(param)) << param;
  }
  // "resize: 8"
  EXPECT_EQ(resize.at("anyOf").at(1),
            map.at("properties").at("size").at("anyOf").size() > 0
                ? Json({{"anyOf", map.at("properties").at("size").at("anyOf")}})
                : Json());
  EXPECT_EQ(stage.at(1).at("properties").at("scale").at("additionalProperties"), false);
}

TEST(Schema, AsksForTheRequiredKeysOnlyWithoutExtends) {
  const Json schema = pipeline_schema(fake_registry());
  EXPECT_FALSE(schema.contains("required"));
  EXPECT_EQ(schema.at("if"), (Json{{"required", Json::array({"extends"})}}));
  EXPECT_EQ(schema.at("else").at("required"),
            Json::array({"pipeline", "source", "stages", "batch"}));
  EXPECT_FALSE(schema.at("properties").at("batch").contains("required"));
  const Json& below = schema.at("else").at("properties");
  EXPECT_EQ(below.at("batch").at("required"), Json::array({"size"}));
  EXPECT_EQ(below.at("source").at("properties").at("files").at("required"), Json::array({"root"}));
}

TEST(Schema, OfTheDaemonTakesNoVariables) {
  const Json schema = daemon_schema();
  EXPECT_EQ(schema.at("properties").at("executor").at("properties").at("io_threads").at("type"),
            "integer");
  EXPECT_EQ(schema.at("properties").at("arena").at("properties").at("budget").at("default"), "25%");
}

// The keys that a schema lets a text have, at any depth.
void collect_keys(const Json& schema, std::vector<std::string>& keys) {
  if (schema.is_array()) {
    for (const Json& each : schema) collect_keys(each, keys);
  } else if (schema.is_object()) {
    if (const auto found = schema.find("properties"); found != schema.end()) {
      for (const auto& [key, value] : found->items()) keys.push_back(key);
    }
    for (const auto& [key, value] : schema.items()) collect_keys(value, keys);
  }
}

std::string read_source_file(const std::string& name) {
  std::ifstream file(std::string(SPDLD_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Docs, NameEveryKeyOfAPipeline) {
  std::string docs;
  for (const std::string page : {"pipeline-yaml", "sources", "fields", "ops"}) {
    const std::string text = read_source_file("docs/" + page + ".md");
    ASSERT_FALSE(text.empty()) << page;
    docs += text;
  }
  std::vector<std::string> keys;
  collect_keys(pipeline_schema(Registry({})), keys);
  ASSERT_GT(keys.size(), 20u);
  for (const std::string& key : keys) {
    EXPECT_NE(docs.find("`" + key + "`"), std::string::npos) << key << " is not in the docs";
  }
}

TEST(Docs, ShowEveryKeyOfTheDaemonInItsConfiguration) {
  const std::string config = read_source_file("config/spdld.yaml");
  ASSERT_FALSE(config.empty());
  std::vector<std::string> keys;
  collect_keys(daemon_schema(), keys);
  ASSERT_GT(keys.size(), 15u);
  for (const std::string& key : keys) {
    EXPECT_NE(config.find(key + ":"), std::string::npos) << key << " is not in the file";
  }
}

}  // namespace
}  // namespace spdld::spec
