#include "model/layers/attention.h"

#include <algorithm>
#include <limits>

namespace draftsmith::model {

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
  const at::Tensor mask = at::zeros({rows, 1, 1, keys}, at::kDouble);
  const double excluded = excluded_score(c10::typeMetaToScalarType(options.dtype()));
  double* data = mask.mutable_data_ptr<double>();
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t length = std::min(lengths[static_cast<size_t>(b)], keys);
    std::fill(data + b * keys + length, data + (b + 1) * keys, excluded);
  }
  return mask.to(options);
}

at::Tensor rows_with_keys(const std::vector<int64_t>& lengths, const at::TensorOptions& options) {
  if (std::find(lengths.begin(), lengths.end(), 0) == lengths.end()) {
    return {};
  }
  const auto rows = static_cast<int64_t>(lengths.size());
  const at::Tensor present = at::ones({rows, 1, 1}, at::kDouble);
  for (int64_t b = 0; b < rows; ++b) {
    if (lengths[static_cast<size_t>(b)] == 0) {
      present.mutable_data_ptr<double>()[b] = 0.0;
    }
  }
  return present.to(options);
}

Projected Attention::project(const at::Tensor& normed) const {
  if (self_ && use_fused(normed)) return parted(fused_(normed));
  return {weights_.query(normed), weights_.key(normed), weights_.value(normed), {}};
}

Projected Attention::project_after_norm(const at::Tensor& x) const {
  return self_ && fused_.few_rows(x) ? parted(fused_.after(weights_.norm, x)) : project(norm(x));
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
  if (use_fused(input)) {
    const int64_t begin = self_ ? heads_.inner() : 0;
    const at::Tensor all = fused_(input);  // [B,L,2*kv*K], behind the query for self-attention
    return {all.narrow(-1, begin, shared), all.narrow(-1, begin + shared, shared)};
  }
  return {weights_.key(input), weights_.value(input)};
}

// Heads of x [B,T,h*K] side by side, each given to the queries that share it. [B*H,T,K]
at::Tensor Attention::split(const at::Tensor& x) const {
  const int64_t own = x.size(2) / heads_.width;
  at::Tensor heads = x.view({x.size(0), x.size(1), own, heads_.width}).transpose(1, 2);  // [B,h,T,K]
  if (own != heads_.count) {
    heads = heads.repeat_interleave(heads_.count / own, 1);
  }
  return heads.reshape({x.size(0) * heads_.count, x.size(1), heads_.width});
}

at::Tensor Attention::attend(const Projected& projected, const ScoreBias& bias, Dropout& dropout) const {
  const int64_t rows = projected.query.size(0);
  const at::Tensor query = split(projected.query);
  const at::Tensor key_t = split(projected.key).transpose(1, 2);
  at::Tensor scores;  // [B*H,T,S]
  if (bias.additive.defined()) {
    scores = at::baddbmm(bias.additive, query, key_t, 1.0, heads_.scale);
  } else {
    scores = at::bmm(query, key_t);
    scores = heads_.scale == 1.0 ? scores : scores * heads_.scale;
  }
  const at::Tensor weights = dropout(at::softmax(scores, -1));
  const at::Tensor context = at::bmm(weights, split(projected.value))
                                 .view({rows, heads_.count, query.size(1), heads_.width})
                                 .transpose(1, 2)
                                 .reshape({rows, query.size(1), heads_.inner()});
  return bias.has_keys.defined() ? context * bias.has_keys : context;
}

at::Tensor Attention::operator()(const at::Tensor& x, const at::Tensor& memory, const ScoreBias& bias, Dropout& dropout,
                                 const InputObserver& observer) const {
  const at::Tensor normed = norm(x);
  Projected projected;
  if (self_) {
    projected = project(normed);
    const auto rotated = [&](const at::Tensor& heads) {
      return bias.rotary.positions() > 0 ? rotate_sequence(heads, heads_.width, bias.rotary) : heads;
    };
    projected.query = rotated(projected.query);
    projected.key = rotated(projected.key);
    if (memory.defined()) {
      const KeyValue other = project_key_value(norm(memory));
      projected.key = at::cat({rotated(other.key), projected.key}, 1);  // [B,2T,kv*K]
      projected.value = at::cat({other.value, projected.value}, 1);
    }
  } else {
    KeyValue from_memory = project_key_value(memory);
    projected = {weights_.query(normed), std::move(from_memory.key), std::move(from_memory.value), {}};
  }
  const at::Tensor context = attend(projected, bias, dropout);
  if (observer) observer(context);
  if (!dropout.active()) {
    return weights_.output.add_to(x, context);
  }
  return x + dropout(weights_.output(context));
}

void Attention::pack(WeightArena& arena) {
  unpack();
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  const auto join = [&](const Linear& part) {
    weights.push_back(part.weight().detach());
    if (part.bias().defined()) {
      biases.push_back(part.bias().detach());
    }
  };
  if (self_) {
    join(weights_.query);
  }
  join(weights_.key);
  join(weights_.value);
  fused_ = Linear(at::cat(weights), biases.empty() ? at::Tensor() : at::cat(biases));
  fused_.pack(arena);
  std::vector<Linear*> parts{&weights_.key, &weights_.value};
  if (self_) parts.push_back(&weights_.query);
  const bool joined = fused_.packed() || !weights_.key.weight().is_cpu();
  if (fused_.packed()) fused_.drop_plain();
  if (!joined) fused_ = Linear();
  for (Linear* part : parts) {
    if (!joined) part->pack(arena);  // converts at least what is stored in another type
    if (joined && arena.only_packed()) part->drop_plain();
  }
  if (!self_) {
    weights_.query.pack(arena);
  }
  weights_.output.pack(arena);
}

void Attention::unpack() {
  fused_ = Linear();
  for (Linear* part : {&weights_.query, &weights_.key, &weights_.value, &weights_.output}) part->unpack();
}

}  // namespace draftsmith::model
