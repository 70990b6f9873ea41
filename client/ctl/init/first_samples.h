// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace spdld::ctl {

// What the first samples of a tar shard have, told apart as WebDataset does it.
struct FirstSamples {
  std::vector<std::string> suffixes = {};        // of all, in the order of their coming
  std::vector<std::set<std::string>> each = {};  // of each sample; at least one
  std::string class_name = {};                   // in a cls that is no integer
  std::string json = {};                         // the json part of the first sample, if it has one
  std::uint64_t in_shard = 0;                    // samples, about

  std::uint64_t having(const std::string& suffix) const;
};

// Throws Failure (kWrongUsage), which names the shard: no sample is in it, or it cannot be read.
FirstSamples read_first_samples(const std::string& shard);

// The suffixes that the field of images is made of: that of the first image
// in the first sample that has any, one without a dot in it before others, and what stands in its
// place in other samples. Empty: there is no image.
std::vector<std::string> image_suffixes(const FirstSamples& samples);

}  // namespace spdld::ctl
