// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavutil/channel_layout.h>
}

#include <cstdint>
#include <string>

namespace spdld::media {

// Which speakers the channels of a sound are for, in FFmpeg's order.
struct Channels {
  int count = 0;
  std::uint64_t mask = 0;  // AV_CH_*; 0: not told, or speakers that no mask has

  // As files tell it. A mask of another number of speakers tells nothing.
  static Channels of(int count, std::uint64_t mask) {
    return {count, __builtin_popcountll(mask) == count ? mask : 0};
  }
  static Channels of(const AVChannelLayout& layout) {
    return of(layout.nb_channels, layout.order == AV_CHANNEL_ORDER_NATIVE ? layout.u.mask : 0);
  }
  // Reads FFmpeg's text, such as "stereo" or "5.1".
  static Channels of(int count, const std::string& text) {
    AVChannelLayout layout{};
    Channels channels{count, 0};
    if (!text.empty() && av_channel_layout_from_string(&layout, text.c_str()) >= 0)
      channels = of(count, of(layout).mask);
    av_channel_layout_uninit(&layout);
    return channels;
  }

  // The layout that mixing takes them for; unspecified where so many have no usual order.
  AVChannelLayout layout() const {
    AVChannelLayout layout{};
    if (mask == 0 || av_channel_layout_from_mask(&layout, mask) < 0)
      av_channel_layout_default(&layout, count);
    return layout;
  }

  friend bool operator==(const Channels&, const Channels&) = default;
};

}  // namespace spdld::media
