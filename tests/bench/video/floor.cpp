// SPDX-License-Identifier: Apache-2.0
// What clips of video cost at least: a loop around libavcodec that decodes the pictures from the
// key frame before a clip to its last frame, and throws them away.
//
// video_floor WAY FRAMES STRIDE THREADS SECONDS SEED FILE...: random clips of FRAMES frames, STRIDE
// apart, on THREADS threads with a decoder each; files are indexed and read into memory before the
// clock runs. WAY: bare (libavcodec alone), decode (our ClipDecoder), pixels (that, and RGB of each
// frame of the clip). Prints a line of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "media/container/codecs.h"
#include "media/container/ffmpeg.h"
#include "media/probe/prober.h"
#include "media/video/video_decoder.h"
#include "media/video/video_parameters.h"

namespace spdld::media {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string way;
  std::size_t frames = 16;
  std::size_t stride = 4;
  unsigned threads = 2;
  double seconds = 5;
  std::uint64_t seed = 1;
};

struct Film {
  std::string bytes;
  MediaStream stream;
};

Film film_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Film film{.bytes = {std::istreambuf_iterator<char>(in), {}}, .stream = {}};
  MemoryReader reader(std::as_bytes(std::span(film.bytes)));
  auto file = probe(reader);
  SPDLD_CHECK(file);
  for (MediaStream& stream : file->streams) {
    if (stream.info.kind != StreamInfo::Kind::kVideo) continue;
    SPDLD_CHECK(stream.info.access == StreamInfo::Access::kPackets);
    film.stream = std::move(stream);
    return film;
  }
  SPDLD_CHECK(false);
}

// The packets from the key frame before the first of these frames to the last of them.
void cut(const Film& film, std::size_t first, const Options& options, MediaClip& clip) {
  clip.clear();
  clip.stream = film.stream.info;
  for (std::size_t i = 0; i < options.frames; ++i)
    clip.frames.push_back(film.stream.frame_pts[first + i * options.stride]);
  const std::vector<MediaPacket>& packets = film.stream.packets;
  std::size_t begin = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    if (packets[i].key && packets[i].pts <= clip.frames.front()) begin = i;
    if (packets[i].pts >= clip.frames.front() && packets[i].pts <= clip.frames.back()) end = i + 1;
  }
  clip.packets.assign(packets.begin() + static_cast<std::ptrdiff_t>(begin),
                      packets.begin() + static_cast<std::ptrdiff_t>(end));
}

class Bare {
 public:
  explicit Bare(const Film& film) {
    const CodecParameters& codec = *film.stream.info.codec;
    auto parameters = video_parameters(codec);
    SPDLD_CHECK(parameters);
    auto context = open_decoder(find_media_codec(codec.codec)->decoder, **parameters, {1, 1000});
    SPDLD_CHECK(context);
    context_ = *std::move(context);
    context_->err_recognition = 0;
  }

  void decode(const MediaClip& clip, std::span<const std::byte> bytes) {
    avcodec_flush_buffers(context_.get());
    for (const MediaPacket& packet : clip.packets) {
      const AvPtr<AVPacket> input(av_packet_alloc());
      SPDLD_CHECK(av_new_packet(input.get(), static_cast<int>(packet.size_bytes)) == 0);
      std::copy_n(reinterpret_cast<const std::uint8_t*>(bytes.data()) + packet.offset,
                  packet.size_bytes, input->data);
      input->pts = packet.pts;
      input->dts = packet.dts;
      SPDLD_CHECK(avcodec_send_packet(context_.get(), input.get()) == 0);
      drain();
    }
    avcodec_send_packet(context_.get(), nullptr);
    drain();
  }

 private:
  void drain() {
    while (avcodec_receive_frame(context_.get(), frame_.get()) == 0) av_frame_unref(frame_.get());
  }

  AvPtr<AVCodecContext> context_;
  AvPtr<AVFrame> frame_{av_frame_alloc()};
};

class NoRows final : public RowSink {
 public:
  void row(int /*y*/, const std::uint8_t* pixels) override { seen_ = pixels[0]; }

 private:
  volatile std::uint8_t seen_ = 0;
};

class Ours {
 public:
  explicit Ours(bool with_pixels) : with_pixels_(with_pixels) {}

  void decode(const MediaClip& clip, std::span<const std::byte> bytes) {
    const Result<Size> size = decoder_.open(clip, bytes);
    SPDLD_CHECK(size);
    NoRows rows;
    for (;;) {
      const Result<bool> more = decoder_.next();
      SPDLD_CHECK(more);
      if (!*more) return;
      if (with_pixels_) SPDLD_CHECK(decoder_.read({0, 0, size->width, size->height}, rows).ok());
    }
  }

 private:
  const bool with_pixels_;
  ClipDecoder decoder_{3, {}};
};

// Returns clips.
template <typename Way>
std::uint64_t decode_on(Way& way, const std::vector<Film>& films, const Options& options,
                        std::uint64_t thread, Clock::time_point end) {
  KeyedRng rng(mix64(options.seed, thread));
  MediaClip clip;
  std::uint64_t clips = 0;
  for (; Clock::now() < end; ++clips) {
    const Film& film = films[rng.below(films.size())];
    const std::size_t span = (options.frames - 1) * options.stride + 1;
    cut(film, rng.below(film.stream.frame_pts.size() - span + 1), options, clip);
    way.decode(clip, std::as_bytes(std::span(film.bytes)));
  }
  return clips;
}

int run(const Options& options, std::span<char* const> paths) {
  std::vector<Film> films;
  for (const char* const path : paths) films.push_back(film_of(path));
  std::atomic<std::uint64_t> clips{0};
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(options.seconds));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      if (options.way == "bare") {
        Bare way(films.front());
        clips += decode_on(way, films, options, i, end);
      } else {
        Ours way(options.way == "pixels");
        clips += decode_on(way, films, options, i, end);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::cout << fmt::format("{{\"way\": \"{}\", \"clips\": {}, \"clips_s\": {:.2f}}}\n", options.way,
                           clips.load(), static_cast<double>(clips.load()) / took.count());
  return 0;
}

}  // namespace
}  // namespace spdld::media

int main(int argc, char** argv) {
  if (argc < 8) {
    std::cerr
        << "usage: video_floor bare|decode|pixels FRAMES STRIDE THREADS SECONDS SEED FILE...\n";
    return 2;
  }
  spdld::media::Options options;
  options.way = argv[1];
  options.frames = std::strtoul(argv[2], nullptr, 10);
  options.stride = std::strtoul(argv[3], nullptr, 10);
  options.threads = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  options.seconds = std::strtod(argv[5], nullptr);
  options.seed = std::strtoul(argv[6], nullptr, 10);
  return spdld::media::run(options, std::span(argv + 7, static_cast<std::size_t>(argc - 7)));
}
