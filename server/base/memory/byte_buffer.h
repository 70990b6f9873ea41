// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/memory/buffer_memory.h"

namespace spdld {

// Bytes that grow but are never zeroed and shrink only when told to, so that a reused one allocates
// nothing once it has seen its largest content. Not thread-safe; one owner at a time.
class ByteBuffer {
 public:
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  // Sets the size; content is kept only when it fits the capacity already there.
  std::byte* resize(std::size_t size) {
    if (size > capacity_) {
      capacity_ = 0;
      data_.reset();  // before there are both
      data_ = std::unique_ptr<std::byte[]>(new std::byte[grown(size)]);
      capacity_ = grown(size);
    }
    size_ = size;
    return data_.get();
  }

  // So much is allocated by resize() where the capacity is too small: somewhat more than is asked
  // for, as the next content may be somewhat larger.
  static std::size_t grown(std::size_t size) {
    return size + std::min(size / 4, std::size_t{16} << 20) + 64;
  }

  // The content counts among its user's buffers until it is dropped.
  void count(BufferMemory::Share share) { share_ = std::move(share); }
  void uncount() { share_ = {}; }
  std::uint64_t counted_bytes() const { return share_.bytes(); }

  // Drops the content, and the memory if it is more than `kept_bytes`.
  void shrink(std::size_t kept_bytes) {
    size_ = 0;
    if (capacity_ > kept_bytes) {
      data_.reset();
      capacity_ = 0;
    }
    uncount();
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  BufferMemory::Share share_;
};

}  // namespace spdld
