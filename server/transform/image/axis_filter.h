// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "op/geometry.h"

namespace spdld::transform {

// Weights are fixed-point numbers of this many fraction bits; those of one output add up to 1 but
// for rounding. An output is (sum of weight * pixel + half) >> kWeightBits, clamped to a byte.
inline constexpr int kWeightBits = 22;

// Which pixels of a line make up each pixel of its resized line, and how much of each: outputs
// [begin, end) of `out` from `in` source pixels. The weights are Pillow's, to the last bit (double
// precision in the same order, then rounded), or without antialias those of an interpolation
// between neighbours with the edges repeated.
//
// Owned by one ImagePass per axis; not thread-safe; its tables grow and are reused, and are kept as
// they are when the next request is the same.
class AxisFilter {
 public:
  struct Request {
    int in = 0;
    int out = 0;
    int begin = 0;
    int end = 0;
    Interpolation interpolation = Interpolation::kBilinear;
    bool antialias = true;
    bool exact = false;  // exact_weights() are wanted, too

    friend bool operator==(const Request&, const Request&) = default;
  };

  // What output begin + i needs: source pixels [first, first + count), count >= 1.
  struct Span {
    int first = 0;
    int count = 0;
  };

  // False when the tables already were those of this request.
  bool build(const Request& request);

  int size() const { return static_cast<int>(spans_.size()); }
  const Span& span(int i) const { return spans_[static_cast<std::size_t>(i)]; }
  // max_count() of them, rounded up to a multiple of four: those beyond the span's count are 0.
  const std::int32_t* weights(int i) const {
    return weights_.data() + static_cast<std::size_t>(i) * stride_;
  }

  // The same before they were rounded.
  const double* exact_weights(int i) const {
    return exact_.data() + static_cast<std::size_t>(i) * stride_;
  }

  int max_count() const { return max_count_; }
  int source_begin() const { return source_begin_; }  // what all outputs together need
  int source_end() const { return source_end_; }

 private:
  void nearest(double scale);
  void nearest_exact();
  void smooth_linear(double scale, double support);
  template <typename Kernel>
  void smooth(double scale, double support, const Kernel& kernel);
  void between(double scale);
  void round_line(int i, int first, int count);
  void trim(int i, int first, int count);

  Request request_;
  std::vector<Span> spans_;
  std::vector<std::int32_t> weights_;
  std::vector<double> exact_;
  std::vector<double> line_;  // weights before they are rounded
  std::vector<std::int32_t> group_weights_;
  std::size_t stride_ = 0;
  int max_count_ = 0;
  int source_begin_ = 0;
  int source_end_ = 0;
};

}  // namespace spdld::transform
