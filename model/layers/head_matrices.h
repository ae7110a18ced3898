// Matrices of single heads and their products, for attention by heads (model/layers/head_attention.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aten.h"
#include "base/random_tensors.h"
#include "model/cpu/softmax_rows.h"

// BLAS' product, which LibTorch's CPU library holds if it has one. LibTorch's operators would cost more than a product
// of one head.
extern "C" [[gnu::weak]] void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                                     const int* k, const float* alpha, const float* a, const int* lda, const float* b,
                                     const int* ldb, const float* beta, float* c, const int* ldc);

namespace draftsmith::model {

// Returns whether LibTorch's library has the product above. HeadProduct may be called there alone.
inline bool has_sgemm() {
  return sgemm_ != nullptr;
}

// A matrix [rows,columns] whose rows are `stride` numbers apart.
struct HeadMatrix {
  float* data = nullptr;
  int64_t stride = 0;
};

// out [m,n] = factor a b + keep out. As BLAS has columns first, b comes first.
struct HeadProduct {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;  // a is stored [k,m], b [n,k]
  double factor = 1, keep = 0;

  void operator()(const HeadMatrix& a, const HeadMatrix& b, const HeadMatrix& out) const {
    const auto number = [](int64_t size) { return static_cast<int>(size); };
    const int rows = number(m), columns = number(n), inner = number(k);
    const int a_stride = number(a.stride), b_stride = number(b.stride), out_stride = number(out.stride);
    const auto alpha = static_cast<float>(factor), beta = static_cast<float>(keep);
    sgemm_(transpose_b ? "t" : "n", transpose_a ? "t" : "n", &columns, &rows, &inner, &alpha, b.data, &b_stride, a.data,
           &a_stride, &beta, out.data, &out_stride);
  }
};

// Sizes and settings of an attention.
struct HeadPlan {
  int64_t rows, queries, keys, heads, shared, width;
  double scale;
  uint32_t threshold;  // of dropout; 0: none
  DropoutKey mask;

  int64_t scores() const { return queries * keys; }
  int64_t heads_of_shared() const { return heads / shared; }
};

// Heads of a tensor [B,L,h*K] as fp32 matrices [L,K]. Those of fp32 tensors are read and written in place, those of
// bf16 through a buffer.
class Heads {
 public:
  Heads(const at::Tensor& tensor, int64_t width)
      : tensor_(tensor), length_(tensor.size(1)), width_(width), half_(tensor.scalar_type() == at::kBFloat16) {}

  int64_t buffer_size() const { return half_ ? length_ * width_ : 0; }

  // Returns a head to read.
  HeadMatrix read(int64_t row, int64_t head, float* buffer) const {
    if (!half_) return in_place(row, head);
    widen_rows(words(row, head), tensor_.stride(1), buffer, length_, width_);
    return {buffer, width_};
  }

  // Returns a head to write; done() must follow.
  HeadMatrix to_write(int64_t row, int64_t head, float* buffer) const {
    return half_ ? HeadMatrix{buffer, width_} : in_place(row, head);
  }

  void done(int64_t row, int64_t head, const float* buffer) const {
    if (half_) narrow_rows(buffer, words(row, head), tensor_.stride(1), length_, width_);
  }

 private:
  int64_t offset(int64_t row, int64_t head) const { return row * tensor_.stride(0) + head * width_; }
  HeadMatrix in_place(int64_t row, int64_t head) const {
    return {static_cast<float*>(tensor_.data_ptr()) + offset(row, head), tensor_.stride(1)};
  }
  uint16_t* words(int64_t row, int64_t head) const {
    return static_cast<uint16_t*>(tensor_.data_ptr()) + offset(row, head);
  }

  at::Tensor tensor_;
  int64_t length_, width_;
  bool half_;
};

// Numbers of a thread, [T,S] of one head, that stand in memory as a mask's groups of elements do.
class ScoreBuffer {
 public:
  explicit ScoreBuffer(const HeadPlan& plan)
      : plan_(plan), numbers_(static_cast<size_t>(plan.scores() + dropout_detail::kGroup)) {}

  // Sets whose scores these are: head number b*H+h.
  void begin(int64_t number) {
    first_ = number * plan_.scores();
    padding_ = plan_.threshold > 0 ? first_ % dropout_detail::kGroup : 0;
  }
  float* data() { return numbers_.data() + padding_; }
  HeadMatrix matrix() { return {data(), plan_.keys}; }

  // Drops elements out, and scales the others.
  void drop() {
    if (plan_.threshold == 0) return;
    std::fill_n(numbers_.data(), padding_, 0.0F);
    dropout_detail::apply_dropout(numbers_.data(), numbers_.data(), padding_ + plan_.scores(),
                                  first_ / dropout_detail::kGroup, plan_.threshold, plan_.mask);
  }

 private:
  const HeadPlan& plan_;
  std::vector<float> numbers_;
  int64_t first_ = 0;
  int64_t padding_ = 0;
};

}  // namespace draftsmith::model
