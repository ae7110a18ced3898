#include "model/layers/head_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/cpu/row_operations.h"

// BLAS' product, which LibTorch's CPU library holds if it has one. LibTorch's operators would cost more than a product
// of one head.
extern "C" [[gnu::weak]] void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                                     const int* k, const float* alpha, const float* a, const int* lda, const float* b,
                                     const int* ldb, const float* beta, float* c, const int* ldc);

namespace draftsmith::model {

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

// Sizes and settings of an attention, kept for its gradients.
struct HeadPlan : torch::CustomClassHolder {
  explicit HeadPlan(const HeadAttentionInput& in)
      : rows(in.query.size(0)),
        queries(in.query.size(1)),
        keys(in.key.size(1)),
        heads(in.query.size(2) / in.width),
        shared(in.key.size(2) / in.width),
        width(in.width),
        scale(in.scale),
        threshold(in.dropout > 0 ? dropout_detail::threshold_of(in.dropout) : 0),
        mask(in.key_of_mask) {}

  int64_t scores() const { return queries * keys; }
  int64_t heads_of_shared() const { return heads / shared; }

  int64_t rows, queries, keys, heads, shared, width;
  double scale;
  uint32_t threshold;  // of dropout; 0: none
  DropoutKey mask;
};

// Heads of a tensor [B,L,h*K] as fp32 matrices [L,K]. Those of fp32 tensors are read and written in place, those of
// bf16 through a buffer: for one thread.
class Heads {
 public:
  Heads(const at::Tensor& tensor, int64_t width)
      : tensor_(tensor),
        length_(tensor.size(1)),
        width_(width),
        half_(tensor.scalar_type() == at::kBFloat16),
        buffer_(static_cast<size_t>(half_ ? length_ * width_ : 0)) {}

  // Returns a head to read.
  HeadMatrix read(int64_t row, int64_t head) {
    if (!half_) return in_place(row, head);
    widen_rows(words(row, head), tensor_.stride(1), buffer_.data(), length_, width_);
    return {buffer_.data(), width_};
  }

  // Returns a head to write; done() must follow.
  HeadMatrix to_write(int64_t row, int64_t head) {
    return half_ ? HeadMatrix{buffer_.data(), width_} : in_place(row, head);
  }

  void done(int64_t row, int64_t head) const {
    if (half_) narrow_rows(buffer_.data(), words(row, head), tensor_.stride(1), length_, width_);
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
  std::vector<float> buffer_;  // of one head of bf16
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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Writes softmax(scale q k^T + additive) of head number b*H+h.
void weigh(const HeadPlan& plan, const HeadMatrix& query, const HeadMatrix& key, const float* additive, int64_t number,
           ScoreBuffer& weights) {
  weights.begin(number);
  const auto scores = static_cast<size_t>(plan.scores());
  if (additive != nullptr) std::memcpy(weights.data(), additive + number * plan.scores(), scores * sizeof(float));
  HeadProduct{.m = plan.queries,
              .n = plan.keys,
              .k = plan.width,
              .transpose_b = true,
              .factor = plan.scale,
              .keep = additive != nullptr ? 1.0 : 0.0}(query, key, weights.matrix());
  softmax_rows(weights.data(), plan.queries, plan.keys);
}

const float* numbers_of(const at::Tensor& additive) {
  return additive.defined() ? additive.const_data_ptr<float>() : nullptr;
}

void forward_heads(const HeadPlan& plan, const variable_list& in, const at::Tensor& out) {
  const float* additive = numbers_of(in[3]);
  at::parallel_for(0, plan.rows * plan.heads, 1, [&](int64_t begin, int64_t end) {
    Heads query(in[0], plan.width), key(in[1], plan.width), value(in[2], plan.width), context(out, plan.width);
    ScoreBuffer weights(plan);
    for (int64_t number = begin; number < end; ++number) {
      const int64_t row = number / plan.heads, head = number % plan.heads, shared = head / plan.heads_of_shared();
      weigh(plan, query.read(row, head), key.read(row, shared), additive, number, weights);
      weights.drop();
      HeadProduct{.m = plan.queries, .n = plan.width, .k = plan.keys}(weights.matrix(), value.read(row, shared),
                                                                      context.to_write(row, head));
      context.done(row, head);
    }
  });
}

// Gradients of query, key, value and, if defined, of `additive`, from the context's.
void backward_heads(const HeadPlan& plan, const variable_list& in, const at::Tensor& upstream,
                    const variable_list& out) {
  const float* additive = numbers_of(in[3]);
  float* additive_slope = out[3].defined() ? out[3].mutable_data_ptr<float>() : nullptr;
  const auto scores = static_cast<size_t>(plan.scores());
  const int64_t each = plan.heads_of_shared();
  at::parallel_for(0, plan.rows * plan.shared, 1, [&](int64_t begin, int64_t end) {
    Heads query(in[0], plan.width), key(in[1], plan.width), value(in[2], plan.width), gradient(upstream, plan.width);
    Heads query_slope(out[0], plan.width), key_slope(out[1], plan.width), value_slope(out[2], plan.width);
    ScoreBuffer weights(plan), dropped(plan), slope(plan);
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t row = pair / plan.shared, shared = pair % plan.shared;
      const HeadMatrix k = key.read(row, shared), v = value.read(row, shared);
      const HeadMatrix dk = key_slope.to_write(row, shared);
      const HeadMatrix dv = value_slope.to_write(row, shared);
      for (int64_t i = 0; i < each; ++i) {
        const int64_t head = shared * each + i, number = row * plan.heads + head;
        const double keep = i > 0 ? 1 : 0;
        const HeadMatrix q = query.read(row, head), g = gradient.read(row, head);
        weigh(plan, q, k, additive, number, weights);
        dropped.begin(number);
        std::memcpy(dropped.data(), weights.data(), scores * sizeof(float));
        dropped.drop();
        HeadProduct{.m = plan.keys, .n = plan.width, .k = plan.queries, .transpose_a = true, .keep = keep}(
            dropped.matrix(), g, dv);
        slope.begin(number);
        HeadProduct{.m = plan.queries, .n = plan.keys, .k = plan.width, .transpose_b = true}(g, v, slope.matrix());
        slope.drop();
        softmax_rows_backward(weights.data(), slope.data(), plan.queries, plan.keys);
        if (additive_slope != nullptr) {
          std::memcpy(additive_slope + number * plan.scores(), slope.data(), scores * sizeof(float));
        }
        HeadProduct{.m = plan.queries, .n = plan.width, .k = plan.keys, .factor = plan.scale}(
            slope.matrix(), k, query_slope.to_write(row, head));
        query_slope.done(row, head);
        HeadProduct{.m = plan.keys,
                    .n = plan.width,
                    .k = plan.queries,
                    .transpose_a = true,
                    .factor = plan.scale,
                    .keep = keep}(slope.matrix(), q, dk);
      }
      key_slope.done(row, shared);
      value_slope.done(row, shared);
    }
  });
}

// Returns a tensor whose heads are numbers side by side.
at::Tensor with_dense_heads(const at::Tensor& x) {
  return x.stride(2) == 1 ? x : x.contiguous();
}

class AttentionByHeads : public torch::autograd::Function<AttentionByHeads> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const at::Tensor& additive,
                            const c10::intrusive_ptr<HeadPlan>& plan) {
    const variable_list in{with_dense_heads(query), with_dense_heads(key), with_dense_heads(value),
                           additive.numel() > 0 ? additive.contiguous() : at::Tensor()};
    const at::Tensor out = at::empty(query.sizes(), query.options().memory_format(at::MemoryFormat::Contiguous));
    forward_heads(*plan, in, out);
    context->save_for_backward(in);
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list in = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<HeadPlan>(context->saved_data["plan"].toCapsule());
    const auto like = [](const at::Tensor& x) {
      return at::empty(x.sizes(), x.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
    };
    variable_list out{like(in[0]), like(in[1]), like(in[2]), context->needs_input_grad(3) ? like(in[3]) : at::Tensor()};
    backward_heads(*plan, in, gradients[0].to(in[0].scalar_type()).contiguous(), out);
    out.emplace_back();  // the plan's
    return out;
  }
};

}  // namespace

bool attends_by_heads(const HeadAttentionInput& input) {
  const at::ScalarType type = input.query.scalar_type();
  const auto takes = [&](const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == type; };
  const bool known = type == at::kFloat || type == at::kBFloat16;
  const bool records = at::GradMode::is_enabled() &&
                       (input.query.requires_grad() || input.key.requires_grad() || input.value.requires_grad() ||
                        (input.additive.defined() && input.additive.requires_grad()));
  return sgemm_ != nullptr && records && known && takes(input.query) && takes(input.key) && takes(input.value) &&
         input.query.numel() > 0 && input.key.numel() > 0 &&
         (!input.additive.defined() || input.additive.scalar_type() == at::kFloat);
}

at::Tensor attention_by_heads(const HeadAttentionInput& input) {
  const auto plan = c10::make_intrusive<HeadPlan>(input);
  // Arguments of a function must be defined: without numbers the bias is nothing.
  const at::Tensor additive = input.additive.defined() ? input.additive : at::empty({0}, at::kFloat);
  return AttentionByHeads::apply(input.query, input.key, input.value, additive, plan);
}

}  // namespace draftsmith::model
