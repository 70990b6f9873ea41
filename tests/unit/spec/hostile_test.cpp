// SPDX-License-Identifier: Apache-2.0
// Texts that nobody would write: parsing ends, with a spec or with a message, and nothing else.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

constexpr std::string_view kSample = R"(# all of it
pipeline: sample
vars: {root: /data, size: 8, twice: "${root}/${root}"}
extends: base.yaml
seed: 42
source:
  files: {root: "${root}/train", pattern: "**/*.JPEG", label: parent_dir, classes: [a, "b", 'c']}
shuffle: {block: 4096, interleave: 16}
stages:
  - fetch: {concurrency: 16}
  - resize: &anchor {size: ["${size}", 3], interpolation: bilinear, antialias: true}
  - resize: *anchor
  - scale: {range: [0.08, 1.0], p: 1e-1}
batch: {size: 64, last: drop, layout: NCHW, max_bytes: 64MiB}
delivery: {device: cpu, prefetch: 4}
on_error: {decode: replace, io: {retry: 5}, budget: {fraction: 0.01, min: 100}}
)";

ParseOptions options() {
  ParseOptions options;
  options.read_file = [](const std::string&) -> Result<std::string> {
    return std::string("batch: {size: 1}\n");
  };
  options.env = [](const std::string&) { return std::nullopt; };
  return options;
}

// How many of the texts were pipelines; the others must say why they are not.
class Outcome {
 public:
  void feed(std::string_view text) {
    const Result<PipelineSpec> spec = parse(text, options());
    if (spec) {
      ++accepted_;
      EXPECT_FALSE(spec->canonical_text.empty());
    } else {
      ++refused_;
      const std::string& message = spec.error().message();
      EXPECT_TRUE(message.starts_with("p.yaml:") || message.starts_with("/conf/base.yaml:"))
          << message;
      EXPECT_LT(message.size(), 1000u);
    }
  }
  int accepted() const { return accepted_; }
  int refused() const { return refused_; }

 private:
  int accepted_ = 0;
  int refused_ = 0;
};

TEST(HostileText, EndsForRandomBytes) {
  KeyedRng rng(1);
  Outcome outcome;
  for (int round = 0; round < 500; ++round) {
    std::string text(rng.below(200), '\0');
    for (char& c : text) c = static_cast<char>(rng.below(256));
    outcome.feed(text);
  }
  EXPECT_EQ(outcome.accepted(), 0);
}

TEST(HostileText, EndsForRandomYamlCharacters) {
  constexpr std::string_view kAlphabet = "{}[]:,-?!&*|>'\"%@`#$ \n\tab01~<.";
  KeyedRng rng(2);
  Outcome outcome;
  for (int round = 0; round < 3000; ++round) {
    std::string text(rng.below(80), '\0');
    for (char& c : text) c = kAlphabet[rng.below(kAlphabet.size())];
    outcome.feed(text);
  }
  EXPECT_EQ(outcome.accepted(), 0);
}

TEST(HostileText, EndsForEveryTruncation) {
  Outcome outcome;
  for (std::size_t length = 0; length <= kSample.size(); ++length) {
    outcome.feed(kSample.substr(0, length));
  }
  EXPECT_GT(outcome.accepted(), 0);  // the whole, at least
  EXPECT_GT(outcome.refused(), 100);
}

TEST(HostileText, EndsForMutations) {
  constexpr std::string_view kBytes = "{}[]:,-?!&*|>'\"%@`#$ \n\t09~<.\x80\xff";
  KeyedRng rng(3);
  Outcome outcome;
  for (int round = 0; round < 3000; ++round) {
    std::string text(kSample);
    for (std::uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const std::size_t at = rng.below(text.size());
      const char byte = kBytes[rng.below(kBytes.size())];
      switch (rng.below(3)) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        default: text.erase(at, 1 + rng.below(20)); break;
      }
    }
    outcome.feed(text);
  }
  EXPECT_GT(outcome.accepted(), 0);
  EXPECT_GT(outcome.refused(), 100);
}

TEST(HostileText, EndsForLongRunsOfOneThing) {
  Outcome outcome;
  for (const std::string unit :
       {"[",   "{", "- ",  "? ",    "a: ",  "\n",   " ", "'",  "\"",  "&a ",
        "*a ", "!", "|\n", "a:\n ", "[a, ", "{a: ", "%", ": ", "-\n", "#"}) {
    std::string text;
    while (text.size() < 20'000) text += unit;
    outcome.feed(text);
  }
  EXPECT_EQ(outcome.accepted(), 0);
}

TEST(HostileText, EndsForManyKeysAndVariables) {
  Outcome outcome;
  std::string keys;
  for (int i = 0; i < 20'000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  outcome.feed(keys);
  std::string vars = "vars:\n";
  for (int i = 0; i < 20'000; ++i) vars += "  k" + std::to_string(i) + ": \"${env:X}\"\n";
  outcome.feed(vars);
  EXPECT_EQ(outcome.accepted(), 0);
}

}  // namespace
}  // namespace spdld::spec
