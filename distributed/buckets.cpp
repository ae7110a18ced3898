#include "distributed/buckets.h"

namespace draftsmith {

bool Bucket::is_one_part() const {
  return parts.size() == 1 && parts.front().is_contiguous() && parts.front().scalar_type() == type;
}

at::Tensor Bucket::packed() const {
  if (is_one_part()) return parts.front();
  at::Tensor together = space();
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    together.narrow(0, begin, part.numel()).view(part.sizes()).copy_(part);
    begin += part.numel();
  }
  return together;
}

at::Tensor Bucket::space() const {
  if (is_one_part()) return parts.front();
  int64_t numbers = 0;
  for (const at::Tensor& part : parts) numbers += part.numel();
  return at::empty({numbers}, parts.front().options().requires_grad(false).dtype(type));
}

void Bucket::unpack(const at::Tensor& together) const {
  if (is_one_part()) return;
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    at::Tensor target = part;
    target.copy_(together.narrow(0, begin, part.numel()).view(part.sizes()));
    begin += part.numel();
  }
}

std::vector<Bucket> in_buckets(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> as) {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;  // of the last bucket
  for (const at::Tensor& tensor : tensors) {
    const at::ScalarType type = as && tensor.is_floating_point() ? *as : tensor.scalar_type();
    const int64_t size = tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
    const bool joins = !buckets.empty() && bytes + size <= kBucketBytes && buckets.back().type == type &&
                       buckets.back().parts.front().device() == tensor.device();
    if (!joins) {
      buckets.push_back({.parts = {}, .type = type});
      bytes = 0;
    }
    buckets.back().parts.push_back(tensor);
    bytes += size;
  }
  return buckets;
}

}  // namespace draftsmith
