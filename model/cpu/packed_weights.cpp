#include "model/cpu/packed_weights.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "model/cpu/team.h"

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

at::Tensor PackedWeights::multiply(const at::Tensor& x, Finish finish) const {
  const at::Tensor input = x.contiguous();
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = outputs_;
  at::Tensor y = at::empty(sizes, input.options());
  run_all({input.const_data_ptr<float>(), nullptr, y.numel() / outputs_, y.mutable_data_ptr<float>()}, finish);
  return y;
}

at::Tensor PackedWeights::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  const at::Tensor input = x.contiguous();
  const at::Tensor added = residual.contiguous();
  at::Tensor y = at::empty_like(added);
  run_all(
      {input.const_data_ptr<float>(), added.const_data_ptr<float>(), y.numel() / outputs_, y.mutable_data_ptr<float>()},
      Finish::kNone);
  return y;
}

void PackedWeights::run_all(const Rows& rows, Finish finish) const {
  const int64_t panel = inputs_ * kPanel * rows.count;  // multiplications
  if (panels() * panel <= products_) {
    run({0, panels()}, rows, finish);
    return;
  }
  in_pieces(panels(), [&](int64_t begin, int64_t end) { run({begin, end}, rows, finish); });
}

at::ScalarType number_type(at::ScalarType type, at::Device device) {
  const bool narrow = type == at::kChar || (type == at::kBFloat16 && device.is_cpu());
  return narrow ? at::kFloat : type;
}

bool packs_on_cpu(const at::Tensor& weight) {
  const at::ScalarType type = weight.scalar_type();
  const bool fits = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
  return weight.device().is_cpu() && fits && weight.numel() > 0;
}

at::Tensor bias_panels(const at::Tensor& bias, int64_t outputs) {
  if (!bias.defined()) return {};
  const int64_t panels = (outputs + kPanel - 1) / kPanel;
  at::Tensor padded = at::zeros({panels, kPanel}, at::kFloat);
  padded.view(-1).narrow(0, 0, outputs).copy_(bias.detach());
  return padded;
}

}  // namespace draftsmith::model
