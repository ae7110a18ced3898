// Memory for packed weights in huge pages. In 4 KB pages, weights that are read once a token wait for address
// translation: 13 against 20 GB/s on one core of the machines measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/aten.h"

namespace draftsmith::model {

// Allocates pieces of large blocks. A block lives as long as a tensor in it, so the arena itself is needed only while
// weights are packed.
class WeightArena {
 public:
  // Layers keep their plain weights beside the packed ones, for gradients and to unpack, in twice the memory.
  WeightArena() = default;
  // Layers keep the packed weights only, in `type`, and on CPUs compute in number_type() of it. If that is fp32,
  // weights may be given in another float type.
  explicit WeightArena(at::ScalarType type) : only_packed_(type) {}

  // Returns the type of weights that are kept without the plain ones; nothing if plain weights are kept.
  std::optional<at::ScalarType> only_packed() const { return only_packed_; }
  // Returns uninitialised memory of the given shape and type, aligned to 64 bytes.
  at::Tensor take(at::IntArrayRef shape, at::ScalarType type);

 private:
  std::optional<at::ScalarType> only_packed_;
  std::shared_ptr<std::byte> block_;
  size_t used_ = 0;
  size_t size_ = 0;
};

}  // namespace draftsmith::model
