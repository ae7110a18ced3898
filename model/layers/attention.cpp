#include "model/layers/attention.h"

#include <algorithm>
#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/device_tensors.h"
#include "model/layers/head_attention.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {
namespace {

// Stands for `rounded` in one layer: its gradient goes to the wide tensor, in which the layers' gradients are summed.
class RoundedBias : public torch::autograd::Function<RoundedBias> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& wide,
                            const at::Tensor& rounded) {
    context->saved_data["shape"] = wide.sizes().vec();
    context->saved_data["type"] = static_cast<int64_t>(wide.scalar_type());
    return rounded.detach();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    std::vector<int64_t> shape = context->saved_data["shape"].toIntVector();
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const bool one_for_all = shape[0] == 1;
    shape[0] = -1;
    const at::Tensor of_rows = gradients[0].reshape(shape);  // [B,H,T,S]
    return {one_for_all ? of_rows.sum(0, /*keepdim=*/true, type) : of_rows.to(type), at::Tensor()};
  }
};

// Returns the numbers with rows [S] whose starts are multiples of 16 numbers apart, as fused attention reads them: it
// would copy others in every layer, or not take them.
at::Tensor with_aligned_rows(const at::Tensor& additive) {
  constexpr int64_t kAlignment = 16;
  const int64_t keys = additive.size(3);
  const int64_t missing = (kAlignment - keys % kAlignment) % kAlignment;
  return missing == 0 ? additive.contiguous() : at::constant_pad_nd(additive, {0, missing}).narrow(3, 0, keys);
}

at::Tensor additive_of(const ScoreBias& bias) {
  if (!bias.rounded.defined()) return bias.additive;
  return bias.additive.requires_grad() ? RoundedBias::apply(bias.additive, bias.rounded) : bias.rounded;
}

}  // namespace

ScoreBias score_bias(const at::Tensor& additive, at::IntArrayRef shape, bool fused) {
  ScoreBias bias;
  bias.fused = fused;
  if (!additive.defined()) return bias;
  const auto formed = [&](const at::Tensor& numbers) {
    return fused ? with_aligned_rows(numbers)
                 : numbers.expand(shape).reshape({shape[0] * shape[1], shape[2], shape[3]});
  };
  const at::DeviceType device = additive.device().type();
  if (additive.is_cpu() || !at::autocast::is_autocast_enabled(device)) {
    bias.additive = formed(additive);
  } else {
    bias.additive = additive;
    bias.rounded = formed(additive.detach().to(at::autocast::get_autocast_dtype(device)));
  }
  return bias;
}

double excluded_score(at::ScalarType type) {
  // Half of the lowest number: adding a negative bias to it stays finite.
  switch (type) {
    case at::kHalf:
      return -32752.0;
    case at::kDouble:
      return std::numeric_limits<double>::lowest() / 2;
    default:
      return static_cast<double>(std::numeric_limits<float>::lowest()) / 2;
  }
}

at::Tensor padding_mask(const std::vector<int64_t>& lengths, int64_t keys, const at::TensorOptions& options) {
  const auto rows = static_cast<int64_t>(lengths.size());
  const double excluded = excluded_score(c10::typeMetaToScalarType(options.dtype()));
  const at::Tensor length = upload(at::tensor(lengths, at::kLong), options.device()).view({rows, 1, 1, 1});
  return at::zeros({rows, 1, 1, keys}, options).masked_fill_(at::arange(keys, length.options()).ge(length), excluded);
}

at::Tensor rows_with_keys(const std::vector<int64_t>& lengths, const at::TensorOptions& options) {
  if (std::find(lengths.begin(), lengths.end(), 0) == lengths.end()) {
    return {};
  }
  const at::Tensor present = at::tensor(lengths, at::kLong).ne(0).to(options.dtype()).view({-1, 1, 1});
  return upload(present, options.device());
}

namespace {

// Returns the norm of x [...,h*K], over as many numbers as it has weights: of each head, or of all of them.
at::Tensor norm_of_heads(const NormLayer& norm, const at::Tensor& x) {
  const int64_t width = norm.weight().size(0);
  return norm(x.unflatten(-1, {x.size(-1) / width, width})).flatten(-2).to(x.scalar_type());
}

at::Tensor rotated_heads(const at::Tensor& heads, int64_t width, const ScoreBias& bias) {
  return bias.rotary.positions() > 0 ? rotate_sequence(heads, width, bias.rotary) : heads;
}

}  // namespace

Projected Attention::normed(Projected projected) const {
  if (!weights_.query_norm) return projected;
  projected.query = norm_of_heads(*weights_.query_norm, projected.query);
  projected.key = norm_of_heads(*weights_.key_norm, projected.key);
  projected.query_key = at::Tensor();  // they have left the memory that they shared
  return projected;
}

Projected Attention::project(const at::Tensor& input) const {
  if (self_ && use_fused(input)) return normed(parted(fused_(input)));
  const std::vector<at::Tensor> parts = joint_linear(input, {&weights_.query, &weights_.key, &weights_.value});
  return normed({parts[0], parts[1], parts[2], {}});
}

Projected Attention::project_residual(const at::Tensor& x) const {
  const bool joined = weights_.residual.norms_input() && self_ && fused_.few_rows(x);
  return joined ? normed(parted(fused_.after(weights_.norm, x))) : project(input_of(x));
}

Projected Attention::parted(const at::Tensor& all) const {
  const int64_t inner = heads_.inner();
  const int64_t shared = heads_.shared_inner();
  // all [B,L,(H+2*kv)*K]
  return {all.narrow(-1, 0, inner), all.narrow(-1, inner, shared), all.narrow(-1, inner + shared, shared),
          all.is_cpu() ? at::Tensor() : all.narrow(-1, 0, inner + shared)};
}

KeyValue Attention::project_key_value(const at::Tensor& input) const {
  const int64_t shared = heads_.shared_inner();
  const auto key_of = [&](const at::Tensor& key) {
    return weights_.key_norm ? norm_of_heads(*weights_.key_norm, key) : key;
  };
  if (use_fused(input)) {
    const int64_t begin = self_ ? heads_.inner() : 0;
    const at::Tensor all = fused_(input);  // [B,L,2*kv*K], behind the query for self-attention
    return {key_of(all.narrow(-1, begin, shared)), all.narrow(-1, begin + shared, shared)};
  }
  const std::vector<at::Tensor> parts = joint_linear(input, {&weights_.key, &weights_.value});
  return {key_of(parts[0]), parts[1]};
}

// Heads of x [B,T,h*K] side by side, each given to the queries that share it. [B*H,T,K]
at::Tensor Attention::split(const at::Tensor& x) const {
  return heads_of(x).reshape({x.size(0) * heads_.count, x.size(1), heads_.width});
}

// Heads of x [B,T,h*K], each given to the queries that share it. [B,H,T,K]
at::Tensor Attention::heads_of(const at::Tensor& x) const {
  const int64_t own = x.size(2) / heads_.width;
  const at::Tensor heads = x.view({x.size(0), x.size(1), own, heads_.width}).transpose(1, 2);  // [B,h,T,K]
  return own == heads_.count ? heads : heads.repeat_interleave(heads_.count / own, 1);
}

at::Tensor Attention::attend(const Projected& projected, const ScoreBias& bias, Dropout& dropout) const {
  HeadAttentionInput by_heads{.query = projected.query,
                              .key = projected.key,
                              .value = projected.value,
                              .additive = bias.additive,
                              .width = heads_.width,
                              .scale = heads_.scale};
  at::Tensor joined;  // [B,T,H*K]
  if (!bias.fused && heads_.score_cap == 0 && attends_by_heads(by_heads)) {
    if (dropout.active()) {
      by_heads.dropout = dropout.probability();
      by_heads.key_of_mask = dropout.next_key();
    }
    joined = attention_by_heads(by_heads);
  } else {
    const at::Tensor context =
        bias.fused ? fused_context(projected, bias) : context_by_products(projected, bias, dropout);  // [B,H,T,K]
    joined = context.transpose(1, 2).reshape({context.size(0), context.size(2), heads_.inner()});
  }
  return bias.has_keys.defined() ? joined * bias.has_keys : joined;
}

// One operator, which keeps no scores.
at::Tensor Attention::fused_context(const Projected& projected, const ScoreBias& bias) const {
  const at::Tensor additive = additive_of(bias);
  const std::optional<at::Tensor> mask = additive.defined() ? std::optional(additive) : std::nullopt;
  return at::scaled_dot_product_attention(heads_of(projected.query), heads_of(projected.key), heads_of(projected.value),
                                          mask, 0.0, bias.causal, heads_.scale);
}

at::Tensor Attention::context_by_products(const Projected& projected, const ScoreBias& bias, Dropout& dropout) const {
  const int64_t rows = projected.query.size(0);
  const at::Tensor query = split(projected.query);
  const at::Tensor key_t = split(projected.key).transpose(1, 2);
  at::Tensor scores;  // [B*H,T,S]
  const at::Tensor additive = additive_of(bias);
  if (additive.defined() && heads_.score_cap == 0) {
    scores = at::baddbmm(additive, query, key_t, 1.0, heads_.scale);
  } else {
    scores = at::bmm(query, key_t);
    scores = soft_capped(heads_.scale == 1.0 ? scores : scores * heads_.scale, heads_.score_cap);
    if (additive.defined()) scores = scores + additive;
  }
  const at::Tensor weights = dropout(at::softmax(scores, -1));
  return at::bmm(weights, split(projected.value)).view({rows, heads_.count, query.size(1), heads_.width});
}

Projected Attention::project_sequence(const at::Tensor& input, const ScoreBias& bias) const {
  Projected projected = project(input);
  projected.query = rotated_heads(projected.query, heads_.width, bias);
  projected.key = rotated_heads(projected.key, heads_.width, bias);
  return projected;
}

at::Tensor Attention::after_seen(const at::Tensor& input, KeyValue& seen, const ScoreBias& bias,
                                 Dropout& dropout) const {
  Projected projected = project_sequence(input, bias);
  if (seen.key.defined()) {
    projected.key = at::cat({seen.key, projected.key}, 1);  // [B,kT,kv*K]
    projected.value = at::cat({seen.value, projected.value}, 1);
  }
  seen = {projected.key, projected.value};
  return attend(projected, bias, dropout);
}

at::Tensor Attention::operator()(const at::Tensor& x, const at::Tensor& memory, const ScoreBias& bias,
                                 Dropout& dropout) const {
  const at::Tensor input = input_of(x);
  Projected projected;
  if (self_) {
    projected = project_sequence(input, bias);
    if (memory.defined()) {
      const KeyValue other = project_key_value(input_of(memory));
      projected.key = at::cat({rotated_heads(other.key, heads_.width, bias), projected.key}, 1);  // [B,2T,kv*K]
      projected.value = at::cat({other.value, projected.value}, 1);
    }
  } else {
    KeyValue from_memory = project_key_value(memory);
    projected = {weights_.query(input), std::move(from_memory.key), std::move(from_memory.value), {}};
  }
  return add_output(x, attend(projected, bias, dropout), dropout);
}

std::optional<AttentionWeightsView> Attention::packed_view() const {
  AttentionWeightsView view{.norm = weights_.norm.row_norm(),
                            .output_norm = output_norm().row_norm(),
                            .input = (self_ ? fused_ : weights_.query).own_weights(),
                            .key_value = self_ ? nullptr : fused_.own_weights(),
                            .output = weights_.output.own_weights(),
                            .heads = heads_.count,
                            .key_value_heads = heads_.key_values(),
                            .head_width = heads_.width,
                            .scale = heads_.scale,
                            .score_cap = heads_.score_cap,
                            .window = heads_.window};
  bool whole = view.norm.weight != nullptr && view.input != nullptr && view.output != nullptr;
  if (weights_.query_norm) {
    view.query_norm = weights_.query_norm->row_norm();
    view.key_norm = weights_.key_norm->row_norm();
    view.norms_width = weights_.query_norm->weight().numel() != heads_.width;
    whole = whole && view.query_norm.weight != nullptr && view.key_norm.weight != nullptr;
  }
  if (!whole || (!self_ && view.key_value == nullptr)) return std::nullopt;
  return view;
}

void Attention::pack(WeightArena& arena) {
  std::vector<Linear*> parts{&weights_.key, &weights_.value};
  if (self_) parts.insert(parts.begin(), &weights_.query);
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  for (const Linear* part : parts) {
    weights.push_back(part->weight().detach());
    if (part->bias().defined()) biases.push_back(part->bias().detach());
  }
  const bool on_cpu = weights.front().is_cpu();
  // On CPUs the parts are packed from where they lie: their shape is enough.
  int64_t outputs = 0;
  for (const at::Tensor& part : weights) outputs += part.size(0);
  const at::Tensor& first = weights.front();
  fused_ = Linear(on_cpu ? at::empty({outputs, first.size(1)}, first.options().device(at::kMeta)) : at::cat(weights),
                  biases.empty() ? at::Tensor() : at::cat(biases));
  fused_.pack(arena, PostOp::kNone, weights);
  const bool joined = fused_.packed() || !on_cpu;
  if (fused_.packed()) fused_.drop_plain();
  if (!joined) fused_ = Linear();
  for (Linear* part : parts) {
    if (!joined) part->pack(arena);
    if (joined && arena.only_packed()) part->drop_plain();
  }
  if (!self_) weights_.query.pack(arena);
  weights_.output.pack(arena);
}

}  // namespace draftsmith::model
