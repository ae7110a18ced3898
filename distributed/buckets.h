// Buckets of tensors that travel between processes together: few large messages are faster than many small ones.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/aten.h"

namespace draftsmith {

// Tensors that travel as one, in `type`.
struct Bucket {
  std::vector<at::Tensor> parts;
  at::ScalarType type = at::kFloat;

  // Returns the values as one tensor: of one contiguous part of the bucket's own type that part itself, else a copy.
  at::Tensor packed() const;
  // Returns a tensor for packed() of another process: a part itself as above, else one with unspecified values.
  at::Tensor space() const;
  // Copies what packed() or space() returned back into the parts.
  void unpack(const at::Tensor& together) const;

 private:
  bool is_one_part() const;
};

inline constexpr int64_t kBucketBytes = int64_t{32} << 20;

// Puts tensors into buckets of at most kBucketBytes, in their order; a larger tensor is alone. Buckets depend on
// types, sizes and devices only. `as`: the type in which floating-point tensors travel; absent: their own.
std::vector<Bucket> in_buckets(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> as = {});

}  // namespace draftsmith
