// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/transform/sound/sounds.h"

namespace spdld::transform {
namespace {

using Json = nlohmann::json;

Json goldens() {
  std::ifstream file(SPDLD_SOURCE_DIR "/tests/goldens/audio.json");
  return Json::parse(file);
}

// The parameters as the op's table has them.
Values values_of(const Json& golden) {
  const std::string op = golden["op"];
  const Registry registry(ops());
  Values values;
  for (const auto& [name, value] : golden["params"].items()) {
    for (const ParamInfo& param : registry.find(op)->params) {
      if (param.name != name) continue;
      switch (param.type) {
        case ParamType::kBool: values[name] = value.get<bool>(); break;
        case ParamType::kInt: values[name] = value.get<std::int64_t>(); break;
        case ParamType::kFloat: values[name] = value.get<double>(); break;
        case ParamType::kString: values[name] = value.get<std::string>(); break;
        default: values[name] = value.get<std::vector<double>>();
      }
    }
    EXPECT_TRUE(values.contains(name)) << op << " has no " << name;
  }
  return values;
}

// How far a value may be away. Both sides compute in float32, so that a bin's error goes by the
// largest bins of its frame: 1e-6 of the largest value is some 8 steps of float32 there. Decibels
// magnify the errors of what is near 0.
double tolerance(const std::string& op, double value, double largest) {
  if (op == "log_mel") return 1e-5;
  if (op == "mfcc") return 1e-3;
  if (op == "amplitude_to_db") return 1e-2;
  return 1e-5 * std::abs(value) + 1e-6 * largest;
}

TEST(AudioGoldens, AreWhatTorchaudioAndWhisperMake) {
  const Json all = goldens();
  const std::size_t step = all["step"];
  ASSERT_GT(all["cases"].size(), 10U);
  for (const Json& golden : all["cases"]) {
    const std::string op = golden["op"];
    SCOPED_TRACE(op + " " + golden["params"].dump());
    Sound sound = pattern(golden["channels"], golden["samples"], golden["sample_rate"]);
    if (op == "amplitude_to_db") sound = changed("spectrogram", {}, std::move(sound));
    sound = changed(op, values_of(golden), std::move(sound));

    std::vector<std::int64_t> shape{sound.channels};
    if (sound.bins > 0) shape.push_back(sound.bins);
    shape.push_back(sound.length);
    EXPECT_EQ(shape, golden["shape"].get<std::vector<std::int64_t>>());
    const auto expected = golden["values"].get<std::vector<double>>();
    ASSERT_EQ(expected.size(), (sound.values.size() + step - 1) / step);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double value = sound.values[i * step];
      EXPECT_NEAR(value, expected[i], tolerance(op, expected[i], largest)) << "value " << i * step;
    }
  }
}

}  // namespace
}  // namespace spdld::transform
