#include "model/transformer/cpu_step.h"

#include <algorithm>
#include <cstring>

#include "model/transformer/step_visibility.h"

namespace draftsmith::model {

CpuStep& CpuStep::of_thread() {
  static thread_local CpuStep step;
  return step;
}

void CpuStep::begin(const StepLayout& layout, DecoderState& state, int64_t width,
                    std::span<const LayerWeightsView> layers) {
  layout_ = &layout;
  state_ = &state;
  self_keys(layout, state, self_);
  if (!state.source_of_row().empty()) cross_keys(layout, state, cross_);
  begin_pass(std::ssize(layout.base) * layout.tokens, width, layers);
  hidden_ = input();
}

void CpuStep::add_attention(Work work, const AttentionWeightsView& weights, int64_t layer) {
  const int64_t heads = std::ssize(layout_->base) * weights.key_value_heads;
  const KernelShape shape = shape_of(work, weights, layer);
  const VisibleKeys& visible = work == Work::kSelfAttention ? self_ : cross_;
  Phase phase{.work = work, .items = heads, .attention = &weights, .layer = layer};
  if (attends_in_blocks(shape, visible)) {
    if (work == Work::kSelfAttention) {
      phases_.push_back({.work = Work::kSplit, .items = heads, .attention = &weights, .layer = layer});
    }
    phase.part = tokens_of_part(shape, visible);
    phase.items = heads * phase.parts(layout_->tokens);
  }
  phases_.push_back(phase);
}

void CpuStep::add_layer(const LayerWeightsView& weights, int64_t layer, float* output) {
  float* to = output == nullptr ? other_than(hidden_) : output;
  add_product(normed(all_rows(hidden_, &weights.self.norm)), *weights.self.input, nullptr, projected_.data());
  add_attention(Work::kSelfAttention, weights.self, layer);
  add_product(all_rows(context_.data()), *weights.self.output, hidden_, to);
  if (weights.cross) {
    add_product(normed(all_rows(to, &weights.cross->norm)), *weights.cross->input, nullptr, projected_.data());
    add_attention(Work::kCrossAttention, *weights.cross, layer);
    add_product(all_rows(context_.data()), *weights.cross->output, to, to);
  }
  add_feed_forward(weights.feed_forward, weights.parallel_residual ? hidden_ : to, to, to);
  hidden_ = to;
}

void CpuStep::add_head(const HeadPass& pass) {
  head_norm_ = pass.norm;
  const Input rows{
      .rows = hidden_, .count = std::ssize(pass.rows), .norm = &head_norm_, .scale = pass.scale, .picked = pass.rows};
  add_product(normed(rows), *pass.head, nullptr, pass.logits);
}

// Rotates the keys of a head and the queries that read it, and writes keys and values to the cache.
void CpuStep::write_key_value(const Phase& phase, int64_t row, int64_t head) const {
  const AttentionWeightsView& weights = *phase.attention;
  const LayerCache& cache = state_->cache(phase.layer);
  const RotaryTable& rotary = state_->positions().rotary;
  const int64_t width = weights.head_width, group = weights.heads / weights.key_value_heads;
  const int64_t cached = cache.keys.size(2) * width;  // numbers of a head
  const int64_t place = (state_->cache_rows()[static_cast<size_t>(row)] * weights.key_value_heads + head) * cached;
  const int64_t base = layout_->base[static_cast<size_t>(row)];
  for (int64_t j = 0; j < layout_->new_tokens[static_cast<size_t>(row)]; ++j) {
    float* token = projected_.data() + (row * layout_->tokens + j) * weights.input->outputs();
    float* query = token + head * group * width;
    float* key = token + weights.inner() + head * width;
    if (rotary.positions() > 0) {
      const int64_t half = rotary.cosine.size(1);
      const int64_t position = std::min(base + (layout_->siblings ? 0 : j), rotary.positions() - 1);
      const float* cosine = rotary.cosine.const_data_ptr<float>() + position * half;
      const float* sine = rotary.sine.const_data_ptr<float>() + position * half;
      rotate_heads(query, group, width, cosine, sine, half);
      rotate_heads(key, 1, width, cosine, sine, half);
    }
    const int64_t slot = place + (base + j) * width;
    const auto bytes = static_cast<size_t>(width) * sizeof(float);
    std::memcpy(cache.keys.mutable_data_ptr<float>() + slot, key, bytes);
    std::memcpy(cache.values.mutable_data_ptr<float>() + slot, key + weights.shared_inner(), bytes);
  }
}

KernelShape CpuStep::shape_of(Work work, const AttentionWeightsView& weights, int64_t layer) const {
  const bool self = work == Work::kSelfAttention;
  const at::Tensor& bias = state_->positions().bias;
  KernelShape shape;
  shape.tokens = layout_->tokens;
  shape.heads = weights.heads;
  shape.key_value_heads = weights.key_value_heads;
  shape.head_width = weights.head_width;
  shape.slots = (self ? state_->cache(layer).keys : state_->cross(layer).keys).size(2);
  shape.query_row_stride = layout_->tokens * weights.input->outputs();
  shape.query_token_stride = weights.input->outputs();
  shape.bias_columns = self && bias.defined() ? bias.size(1) : 0;
  shape.scale = weights.scale;
  return shape;
}

void CpuStep::compute(const Phase& phase, int64_t begin, int64_t end) const {
  const AttentionWeightsView& weights = *phase.attention;
  const int64_t heads = weights.key_value_heads, group = weights.heads / heads;
  if (phase.work == Work::kSplit) {
    for (int64_t item = begin; item < end; ++item) write_key_value(phase, item / heads, item % heads);
    return;
  }
  const bool self = phase.work == Work::kSelfAttention;
  const at::Tensor& keys = self ? state_->cache(phase.layer).keys : state_->cross(phase.layer).keys;
  const at::Tensor& values = self ? state_->cache(phase.layer).values : state_->cross(phase.layer).values;
  const at::Tensor& bias = state_->positions().bias;
  const VisibleKeys& visible = self ? self_ : cross_;
  const KernelShape shape = shape_of(phase.work, weights, phase.layer);
  const KernelPointers<float> pointers{projected_.data(), keys.const_data_ptr<float>(), values.const_data_ptr<float>(),
                                       shape.bias_columns > 0 ? bias.const_data_ptr<float>() : nullptr,
                                       context_.data()};
  const int64_t parts = phase.parts(layout_->tokens);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / parts / heads, head = item / parts % heads;
    if (phase.part > 0) {
      const int64_t first = item % parts * phase.part;
      attend_in_blocks(shape, visible, pointers, {row, head, first, std::min(first + phase.part, layout_->tokens)});
      continue;
    }
    if (self) write_key_value(phase, row, head);
    for (int64_t i = 0; i < group; ++i) attend_head(shape, visible, pointers, row, head * group + i);
  }
}

}  // namespace draftsmith::model
