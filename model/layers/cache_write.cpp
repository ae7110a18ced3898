#include "model/layers/cache_write.h"

#include <cstring>

namespace draftsmith::model {
namespace {

// Plain memory copies: one head of one token is contiguous on both sides.
void write_host(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                const StepLayout& layout) {
  const int64_t heads = cache.size(1);
  const int64_t slots = cache.size(2);
  const auto item = static_cast<int64_t>(cache.element_size());
  const int64_t head_bytes = cache.size(3) * item;
  auto* to = static_cast<std::byte*>(cache.mutable_data_ptr());
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  for (size_t b = 0; b < layout.base.size(); ++b) {
    const auto row = static_cast<int64_t>(b);
    for (int64_t j = 0; j < layout.new_tokens[b]; ++j) {
      const std::byte* token = source + (row * from.stride(0) + j * from.stride(1)) * item;
      std::byte* slot = to + (rows[b] * heads * slots + layout.base[b] + j) * head_bytes;
      for (int64_t head = 0; head < heads; ++head) {
        std::memcpy(slot + head * slots * head_bytes, token + head * head_bytes, static_cast<size_t>(head_bytes));
      }
    }
  }
}

// Plain memory copies: the slots of one head are contiguous.
void copy_on_host(const at::Tensor& cache, const std::vector<int64_t>& from, const std::vector<int64_t>& to,
                  int64_t slots) {
  const int64_t heads = cache.size(1);
  const int64_t head_bytes = cache.size(2) * cache.size(3) * static_cast<int64_t>(cache.element_size());
  const auto copied = static_cast<size_t>(slots * cache.size(3)) * cache.element_size();
  auto* data = static_cast<std::byte*>(cache.mutable_data_ptr());
  for (size_t i = 0; i < from.size(); ++i) {
    for (int64_t head = 0; head < heads; ++head) {
      std::memcpy(data + (to[i] * heads + head) * head_bytes, data + (from[i] * heads + head) * head_bytes, copied);
    }
  }
}

}  // namespace

void copy_rows(const at::Tensor& cache, const std::vector<int64_t>& from, const std::vector<int64_t>& to,
               int64_t slots) {
  if (from.empty() || slots == 0) return;
  if (cache.is_cpu()) return copy_on_host(cache, from, to, slots);
  const at::Tensor used = cache.narrow(2, 0, slots);
  const auto index = [&](const std::vector<int64_t>& rows) { return at::tensor(rows, at::kLong).to(cache.device()); };
  at::Tensor(used).index_copy_(0, index(to), used.index_select(0, index(from)));
}

void write_slots(const at::Tensor& cache, const std::vector<int64_t>& rows, const at::Tensor& from,
                 const StepLayout& layout) {
  const at::Tensor converted = from.scalar_type() == cache.scalar_type() ? from : from.to(cache.scalar_type());
  write_host(cache, rows, converted.stride(-1) == 1 ? converted : converted.contiguous(), layout);
}

}  // namespace draftsmith::model
