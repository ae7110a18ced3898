// Memory for packed weights in huge pages. Weights that are read once a token wait for the translation of addresses
// when they lie in 4 KB pages: 13 against 20 GB/s on one core of the machines this is measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/aten.h"

namespace draftsmith::model {

// Hands out pieces of large blocks. A block lives as long as a tensor in it, so the arena itself is needed only while
// weights are packed.
class WeightArena {
 public:
  // Layers keep their plain weights beside the packed ones: for gradients and to unpack, in twice the memory.
  WeightArena() = default;
  // They keep the packed ones only and compute in `type`; what is fp32 then may be stored in another float type.
  explicit WeightArena(at::ScalarType type) : only_packed_(type) {}

  // The type that layers without plain weights compute in; nothing where plain weights are kept.
  std::optional<at::ScalarType> only_packed() const { return only_packed_; }
  // Uninitialised fp32 memory of the given shape, aligned to 64 bytes.
  at::Tensor take(at::IntArrayRef shape);

 private:
  std::optional<at::ScalarType> only_packed_;
  std::shared_ptr<std::byte> block_;
  size_t used_ = 0;
  size_t size_ = 0;
};

}  // namespace draftsmith::model
