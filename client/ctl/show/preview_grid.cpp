// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/preview_grid.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/show/image_grid.h"
#include "ctl/show/sound_grid.h"

namespace spdld::ctl {
namespace {

std::string what_is_there(const v1::PreviewHeader& header) {
  std::string list;
  for (const v1::Tensor& tensor : header.tensors()) {
    if (!list.empty()) list += ", ";
    list += tensor.name() + " " + show_tensor(tensor);
  }
  return list;
}

}  // namespace

Grid make_grid(const Preview& preview) {
  if (std::optional<Grid> images = image_grid(preview)) return *std::move(images);
  if (std::optional<Grid> sound = sound_grid(preview)) return *std::move(sound);
  throw Failure(kFailed,
                fmt::format("no tensor of this pipeline can be drawn (it gives {}): images, clips "
                            "and spectra are drawn where their rows have one size, and sound of "
                            "float32: decode them, and give images and clips one size, or leave "
                            "out -o to list the rows alone",
                            what_is_there(preview.header)));
}

}  // namespace spdld::ctl
