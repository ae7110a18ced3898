// Memory for packed weights in huge pages. Weights that are read once a token wait for the translation of addresses
// when they lie in 4 KB pages: 13 against 20 GB/s on one core of the machines this is measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <ATen/ATen.h>

namespace draftsmith::model {

// Whether a layer keeps its plain weights beside the packed ones: needed for gradients and to unpack, twice the memory.
enum class PlainWeights { kKept, kDropped };

// Hands out pieces of large blocks. A block lives as long as a tensor in it, so the arena itself is needed only while
// weights are packed.
class WeightArena {
 public:
  explicit WeightArena(PlainWeights plain = PlainWeights::kKept) : plain_(plain) {}

  // What becomes of the plain weights of a layer that is packed.
  PlainWeights plain() const { return plain_; }
  // Uninitialised fp32 memory of the given shape, aligned to 64 bytes.
  at::Tensor take(at::IntArrayRef shape);

 private:
  PlainWeights plain_;
  std::shared_ptr<std::byte> block_;
  size_t used_ = 0;
  size_t size_ = 0;
};

}  // namespace draftsmith::model
