#include "model/cpu/weight_arena.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace draftsmith::model {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kSmallestBlock = size_t{1} << 25;
constexpr size_t kArenaAlignment = 64;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

at::Tensor WeightArena::take(at::IntArrayRef shape, at::ScalarType type) {
  const size_t bytes =
      rounded(static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(type), kArenaAlignment);
  if (used_ + bytes > size_) {
    size_ = rounded(std::max(bytes, kSmallestBlock), kHugePage);
    used_ = 0;
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size_)), [](std::byte* p) { std::free(p); });
    if (block_ == nullptr) {
      throw std::bad_alloc();
    }
    // A hint to the kernel: if it refuses, small pages are used. Pages that are never written take no memory.
    madvise(block_.get(), size_, MADV_HUGEPAGE);
  }
  std::byte* begin = block_.get() + used_;
  used_ += bytes;
  return at::from_blob(
      begin, shape, [block = block_](void*) {}, type);
}

}  // namespace draftsmith::model
