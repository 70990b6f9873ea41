// SPDX-License-Identifier: Apache-2.0
// Times that others wrote down name the frames that they meant, in files of every container.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/file_prober.h"
#include "source/file/io_pool.h"
#include "source/open_source.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::engine {
namespace {

using media::test::MediaMaker;

constexpr int kPictures = 40;

// A frame rate as FFmpeg's command line has it.
struct Rate {
  std::int64_t num = 25;
  std::int64_t den = 1;

  std::string text() const { return std::to_string(num) + "/" + std::to_string(den); }
  double seconds(std::int64_t frame) const {
    return static_cast<double>(frame * den) / static_cast<double>(num);
  }
};

struct Film {
  std::string name;
  std::vector<double> pts = {};    // of the frames, as ffprobe tells it
  std::vector<double> added = {};  // of the same frames, added up from the durations of episodes
};

// The same pictures in ten containers, and episodes of them one behind the other in an eleventh.
std::vector<Film> make_files(const MediaMaker& maker, const Rate& rate) {
  const std::string mpeg4 = " -c:v mpeg4 -q:v 5 ";
  const std::vector<std::pair<std::string, std::string>> containers = {
      {"a.mp4", mpeg4},
      {"coarse.mp4", mpeg4 + "-video_track_timescale 600"},
      {"pieces.mp4", mpeg4 + "-movflags frag_keyframe+empty_moov"},
      {"a.mov", " -c:v mjpeg"},
      {"a.3gp", mpeg4},
      {"a.mkv", mpeg4},
      {"late.mkv", mpeg4 + "-output_ts_offset 0.7"},
      {"a.webm", " -c:v libvpx -deadline realtime"},
      {"a.avi", mpeg4},
      {"a.ts", " -c:v mpeg2video -bf 2 -q:v 5"},
  };
  const std::string pictures =
      media::test::moving_pictures(kPictures, "size=176x144:rate=" + rate.text());
  std::string outputs;
  for (const auto& [name, options] : containers)
    outputs += options + (name == containers.back().first ? " " : " " + name + " ");
  maker.make(pictures + outputs, containers.back().first);
  std::string list;
  for (const int frames : {7, 20, 13}) {
    const std::string name = "e" + std::to_string(frames) + ".mp4";
    maker.make(media::test::moving_pictures(frames, "size=176x144:rate=" + rate.text()) + mpeg4,
               name);
    list += "file '" + name + "'\n";
  }
  maker.write("list.txt", media::test::bytes_of(list));
  maker.make("-f concat -safe 0 -i list.txt -c copy", "episodes.mp4");

  std::vector<Film> made;
  for (const auto& container : containers) made.push_back({.name = container.first});
  made.push_back({.name = "episodes.mp4"});
  for (Film& file : made) {
    for (const auto& row : maker.probe(file.name, "v:0", "frame", {"best_effort_timestamp_time"}))
      file.pts.push_back(std::stod(row[0]));
    std::sort(file.pts.begin(), file.pts.end());
    for (std::int64_t k = 0; k < kPictures; ++k)
      file.added.push_back((file.pts.empty() ? 0 : file.pts[0]) + rate.seconds(k));
  }
  return made;
}

double rounded(double seconds, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(seconds * scale) / scale;
}

class ClipTimes : public ::testing::TestWithParam<Rate> {};

TEST_P(ClipTimes, NameTheFrameThatWasMeantInEveryContainerAndRounding) {
  const Rate& rate = GetParam();
  const FileProber prober;
  source::IoPool io{{.threads = 2}};
  const MediaMaker maker;
  const source::TempDir dir;
  const std::vector<Film> files = make_files(maker, rate);
  std::ostringstream lines;
  lines.precision(17);
  for (const Film& file : files) {
    ASSERT_EQ(file.pts.size(), static_cast<std::size_t>(kPictures)) << file.name;
    for (std::size_t k = 0; k < file.pts.size(); ++k) {
      const double added = file.added[k];
      for (const double seconds :
           {file.pts[k], added, static_cast<double>(static_cast<float>(added)), rounded(added, 4),
            rounded(added, 3)})
        lines << R"({"video": ")" << file.name << R"(", "at": )" << seconds << "}\n";
    }
  }
  dir.file("rows.jsonl", lines.str());
  TableSpec table;
  table.file = dir.path("rows.jsonl");
  table.root = std::filesystem::path(maker.path_of("a.mp4")).parent_path();
  table.uris = {{.field = "video", .column = "video"}};
  table.values = {{.field = "at", .column = "at", .type = ValueType::kFloat64}};
  ClipsSpec clips{.frames = 1, .sampling = ClipsSpec::Sampling::kTimestamps};
  clips.times_field = "at";
  source::SourceOptions options(io);
  options.prober = &prober;
  const auto opened = source::open_source({.items = table, .clips = clips}, std::move(options));
  ASSERT_TRUE(opened) << opened.error().message();
  source::Source& rows = **opened;
  constexpr std::size_t kForms = 5;
  ASSERT_EQ(rows.size(), files.size() * kPictures * kForms);
  const std::size_t start = rows.fields().back().index;
  ASSERT_EQ(rows.fields().back().name, "start");
  std::size_t wrong = 0;
  for (std::uint64_t item = 0; item < rows.size(); ++item) {
    const Film& file = files[item / (kPictures * kForms)];
    const double wanted = file.pts[item / kForms % kPictures];
    const double found = std::get<double>(rows.value(item, start));
    // ffprobe prints six digits.
    if (std::abs(found - wanted) < 2e-6) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << file.name << " at " << rate.text() << ", form " << item % kForms << ": "
                    << found << " s, not " << wanted << " s";
  }
  EXPECT_EQ(wrong, 0u) << rate.text();
}

INSTANTIATE_TEST_SUITE_P(Rates, ClipTimes,
                         ::testing::Values(Rate{24000, 1001}, Rate{25, 1}, Rate{30000, 1001},
                                           Rate{30, 1}, Rate{50, 1}, Rate{60000, 1001}),
                         [](const auto& rate) {
                           return std::to_string(rate.param.num) + "Per" +
                                  std::to_string(rate.param.den);
                         });

}  // namespace
}  // namespace spdld::engine
