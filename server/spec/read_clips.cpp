// SPDX-License-Identifier: Apache-2.0
#include "spec/read_clips.h"

#include <cstdint>

#include "spec/extends.h"
#include "spec/scalar.h"

namespace spdld::spec {
namespace {

using Json = nlohmann::json;
using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;
using Unit = ClipsSpec::Unit;

Sampling sampling_of(const std::string& word) {
  return word == "uniform"      ? Sampling::kUniform
         : word == "random"     ? Sampling::kRandom
         : word == "timestamps" ? Sampling::kTimestamps
         : word == "keyframes"  ? Sampling::kKeyframes
                                : Sampling::kDense;
}

std::string stream_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::to_string(value.get<std::int64_t>());
}

class Reader {
 public:
  Reader(const Node& node, const Json& json, const std::string& name)
      : node_(node), json_(json), name_(name) {}

  Result<ClipsSpec> read() {
    clips_.unit = name_ == "source.clips" ? Unit::kFrames : Unit::kSeconds;
    if (has("sampling") && json_.at("sampling") == "whole") {
      SPDLD_TRY(read_whole());
    } else {
      SPDLD_TRY(read_sampling());
      SPDLD_TRY(read_extent());
    }
    SPDLD_TRY(read_times());
    if (has("field")) clips_.field = json_.at("field").get<std::string>();
    clips_.stream = stream_of(json_.at("stream"));
    if (clips_.stream.empty())
      return tl::unexpected<Status>(refuse("stream", "write best, a number, or a language"));
    const std::string end = has("end") ? json_.at("end").get<std::string>() : "drop";
    clips_.end = end == "pad" ? End::kPad : end == "loop" ? End::kLoop : End::kDrop;
    clips_.broken =
        json_.at("broken") == "error" ? ClipsSpec::Broken::kError : ClipsSpec::Broken::kSkip;
    if (clips_.unit == Unit::kFrames) SPDLD_TRY(read_frames());
    return clips_;
  }

 private:
  bool has(const char* key) const { return json_.contains(key); }
  Status refuse(const char* key, const std::string& text) const {
    const Node* const at = node_.find(key);
    return (at == nullptr ? node_ : *at).fail(name_ + "." + key + ": " + text);
  }

  Status read_whole() {
    clips_.sampling = Sampling::kWhole;
    for (const char* const key : {"seconds", "hop", "per_file", "timestamps", "end"}) {
      // `end` has a default.
      if (!has(key) || node_.find(key) == nullptr) continue;
      return refuse(key,
                    "'sampling: whole' makes one window of each file, all of it; leave this "
                    "out (over a base that has it, write '" +
                        std::string(key) + ": null'), or write another sampling");
    }
    if (has("min_seconds")) clips_.min_seconds = json_.at("min_seconds").get<double>();
    if (has("max_seconds")) clips_.max_seconds = json_.at("max_seconds").get<double>();
    if (has("min_seconds") && has("max_seconds") && clips_.min_seconds > clips_.max_seconds)
      return refuse("min_seconds", "it is more than max_seconds, so that no file would be left");
    return {};
  }

  Status read_sampling() {
    for (const char* const key : {"min_seconds", "max_seconds"}) {
      if (has(key))
        return refuse(key,
                      "files are left out by their length where windows are whole files: write "
                      "'sampling: whole', or leave this out");
    }
    if (has("sampling")) {
      const std::string word = json_.at("sampling").get<std::string>();
      clips_.sampling = sampling_of(word);
      if (has("timestamps") && clips_.sampling != Sampling::kTimestamps)
        return refuse("timestamps", "they say where each begins, and 'sampling: " + word +
                                        "' does, too; leave one of the two out");
      if (clips_.sampling == Sampling::kTimestamps && !has("timestamps"))
        return refuse("sampling", "add 'timestamps', a list of seconds or the name of a field");
    } else if (has("timestamps")) {
      clips_.sampling = Sampling::kTimestamps;
    } else if (has("per_file")) {
      return refuse("per_file",
                    "add 'sampling: uniform', which spreads them evenly, or 'sampling: random'");
    }
    const bool by_number =
        clips_.sampling == Sampling::kUniform || clips_.sampling == Sampling::kRandom;
    if (has("per_file") && !by_number)
      return refuse("per_file", "of a file there are as many as 'sampling: " +
                                    (has("sampling") ? json_.at("sampling").get<std::string>()
                                                     : std::string("timestamps")) +
                                    "' gives; leave it out, or write 'sampling: uniform' or "
                                    "'random'");
    if (has("hop") && clips_.sampling != Sampling::kDense)
      return refuse("hop",
                    "it is how far apart those of 'sampling: dense' are; leave it out, or "
                    "write that");
    if (has("per_file")) clips_.per_file = json_.at("per_file").get<std::int64_t>();
    return {};
  }

  Status read_extent() {
    if (clips_.unit == Unit::kSeconds) {
      if (!has("seconds"))
        return node_.fail("'" + name_ +
                          ".seconds' is missing: how long each window is; or write 'sampling: "
                          "whole', which makes one of all of each file");
      clips_.seconds = json_.at("seconds").get<double>();
      if (has("hop")) clips_.hop_seconds = json_.at("hop").get<double>();
      return {};
    }
    clips_.frames = json_.at("frames").get<std::int64_t>();
    clips_.stride = json_.at("stride").get<std::int64_t>();
    if (has("hop")) clips_.hop_frames = json_.at("hop").get<std::int64_t>();
    return {};
  }

  Status read_times() {
    if (!has("timestamps")) return {};
    const Json& times = json_.at("timestamps");
    if (times.is_string()) {
      clips_.times_field = times.get<std::string>();
      if (!is_field_name(clips_.times_field))
        return refuse("timestamps", not_a_field_name(clips_.times_field));
      return {};
    }
    clips_.times = times.get<std::vector<double>>();
    if (clips_.times.empty()) return refuse("timestamps", "name at least one time");
    return {};
  }

  Status read_frames() {
    clips_.stack = json_.at("stack").get<bool>();
    if (has("audio")) clips_.audio = json_.at("audio").get<std::string>();
    if (clips_.stack && clips_.sampling != Sampling::kUniform &&
        clips_.sampling != Sampling::kRandom)
      return refuse("stack",
                    "the clips of a file are one item where there are as many of each: write "
                    "'sampling: uniform' or 'random', and 'per_file: N'");
    if (clips_.stack && clips_.per_file > static_cast<std::int64_t>(ClipsSpec::kMostStacked))
      return refuse("per_file", "an item has at most " + std::to_string(ClipsSpec::kMostStacked) +
                                    " clips; lower it, or leave 'stack' out");
    if (clips_.stack && !clips_.audio.empty())
      return refuse("audio",
                    "the sound of stacked clips would be of one of them alone; leave "
                    "'stack' out, so that each clip is an item with its sound");
    if (has("audio_stream")) {
      if (clips_.audio.empty())
        return refuse("audio_stream",
                      "no sound is asked for; add 'audio: NAME', the field that "
                      "has it");
      clips_.audio_stream = stream_of(json_.at("audio_stream"));
    }
    return {};
  }

  const Node& node_;
  const Json& json_;
  const std::string& name_;
  ClipsSpec clips_;
};

}  // namespace

Result<ClipsSpec> read_clips(const Node& node, const Json& json, const std::string& name) {
  return Reader(node, json, name).read();
}

}  // namespace spdld::spec
