// A counter of what LibTorch's matrix products add and multiply. Attention over caches on CPUs is one in fp64 alone.
#pragma once

#include <string_view>

#include <ATen/record_function.h>

#include "base/aten.h"

namespace draftsmith {

// Operations so far, by what multiplies what.
struct Products {
  double weights = 0;    // tokens with weights: products of two matrices
  double attention = 0;  // tokens with tokens: products of batches of matrices
};

// Counts the products of this thread while it lives. One at a time.
class ProductCounter {
 public:
  ProductCounter() {
    counts() = {};
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&ProductCounter::began).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~ProductCounter() { at::removeCallback(handle_); }
  ProductCounter(const ProductCounter&) = delete;
  ProductCounter& operator=(const ProductCounter&) = delete;

  Products products() const { return counts(); }

 private:
  static Products& counts() {
    static thread_local Products products;
    return products;
  }

  static std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    const auto inputs = function.inputs();
    const auto numbers = [&](size_t i) { return static_cast<double>(inputs[i].toTensor().numel()); };
    const auto size = [&](size_t i, int64_t dim) { return static_cast<double>(inputs[i].toTensor().size(dim)); };
    if (name == "aten::mm") counts().weights += 2 * numbers(0) * size(1, 1);
    if (name == "aten::addmm") counts().weights += 2 * numbers(1) * size(2, 1);
    if (name == "aten::bmm") counts().attention += 2 * numbers(0) * size(1, 2);
    if (name == "aten::baddbmm") counts().attention += 2 * numbers(1) * size(2, 2);
    // Scores, and their product with the values.
    if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") counts().attention += 4 * numbers(0) * size(1, 2);
    return nullptr;
  }

  at::CallbackHandle handle_{};
};

}  // namespace draftsmith
