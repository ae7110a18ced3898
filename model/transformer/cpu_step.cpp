#include "model/transformer/cpu_step.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "model/cpu/attention_kernel.h"
#include "model/transformer/step_visibility.h"

namespace draftsmith::model {
namespace {

// Rows that each thread norms for itself: fewer take less time than one more phase.
constexpr int64_t kNormedByAll = 4;

KernelShape kernel_shape(const AttentionWeightsView& weights, const at::Tensor& keys, int64_t tokens,
                         int64_t query_width) {
  KernelShape shape;
  shape.tokens = tokens;
  shape.heads = weights.heads;
  shape.key_value_heads = weights.key_value_heads;
  shape.head_width = weights.head_width;
  shape.slots = keys.size(2);
  shape.query_row_stride = tokens * query_width;
  shape.query_token_stride = query_width;
  shape.scale = weights.scale;
  return shape;
}

// Rows that a thread has normed.
struct NormedRows {
  uint64_t step = 0;
  int64_t key = 0;
  std::vector<float> rows;
};

}  // namespace

void CpuStep::Buffer::fit(int64_t numbers) {
  if (numbers <= size_) return;
  memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(numbers));
  size_ = numbers;
}

CpuStep& CpuStep::of_thread() {
  static thread_local CpuStep step;
  return step;
}

void CpuStep::begin(const StepLayout& layout, DecoderState& state, int64_t width,
                    std::span<const LayerWeightsView> layers) {
  static std::atomic<uint64_t> steps{0};
  number_ = ++steps;
  layout_ = &layout;
  state_ = &state;
  self_keys(layout, state, self_);
  if (!state.source_of_row().empty()) cross_keys(layout, state, cross_);
  width_ = width;
  tokens_ = std::ssize(layout.base) * layout.tokens;
  norms_ = 0;
  phases_.clear();
  for (Buffer* buffer : {&buffers_[0], &buffers_[1], &normed_}) buffer->fit(tokens_ * width);
  for (const LayerWeightsView& layer : layers) {
    projected_.fit(tokens_ * layer.self.input->outputs());
    context_.fit(tokens_ * layer.self.inner());
    inner_.fit(tokens_ * layer.feed_forward.up->outputs());
    if (layer.feed_forward.gate != nullptr) up_.fit(tokens_ * layer.feed_forward.up->outputs());
  }
  hidden_ = input();
}

CpuStep::Input CpuStep::normed(Input input) {
  if (input.count <= kNormedByAll) {
    input.key = ++norms_;
    return input;
  }
  phases_.push_back({.run = &CpuStep::run_norm, .items = input.count, .input = input, .output = normed_.data()});
  return {.rows = normed_.data(), .count = input.count};
}

void CpuStep::add_product(const Input& input, const PackedWeights& weights, const float* residual, float* output) {
  phases_.push_back({.run = &CpuStep::run_product,
                     .items = weights.panels(),
                     .input = input,
                     .weights = &weights,
                     .residual = residual,
                     .output = output});
}

void CpuStep::add_attention(const AttentionWeightsView& weights, int64_t layer, bool self) {
  phases_.push_back({.run = self ? &CpuStep::run_self_attention : &CpuStep::run_cross_attention,
                     .items = std::ssize(layout_->base) * weights.key_value_heads,
                     .attention = &weights,
                     .layer = layer});
}

void CpuStep::add_feed_forward(const FeedForwardWeightsView& weights, const float* input, const float* residual,
                               float* output) {
  const PackedWeights& first = weights.gate == nullptr ? *weights.up : *weights.gate;
  Input rows = all_rows(input);
  rows.norm = &weights.norm;
  rows = normed(rows);
  phases_.push_back(
      {.run = &CpuStep::run_feed_forward, .items = first.panels(), .input = rows, .feed_forward = &weights});
  add_product(all_rows(inner_.data()), *weights.down, residual, output);
}

void CpuStep::add_layer(const LayerWeightsView& weights, int64_t layer, float* output) {
  float* to = output;
  if (to == nullptr) to = buffers_[hidden_ == buffers_[0].data() ? 1 : 0].data();
  Input rows = all_rows(hidden_);
  rows.norm = &weights.self.norm;
  add_product(normed(rows), *weights.self.input, nullptr, projected_.data());
  add_attention(weights.self, layer, true);
  add_product(all_rows(context_.data()), *weights.self.output, hidden_, to);
  if (weights.cross) {
    rows.rows = to;
    rows.norm = &weights.cross->norm;
    add_product(normed(rows), *weights.cross->input, nullptr, projected_.data());
    add_attention(*weights.cross, layer, false);
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

void CpuStep::run() {
  Team::current().run(*this);
}

void CpuStep::run(int64_t phase, int64_t begin, int64_t end) const {
  const Phase& found = phases_[static_cast<size_t>(phase)];
  (this->*found.run)(found, begin, end);
}

void CpuStep::normalize(const Input& input, int64_t begin, int64_t end, float* to) const {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = input.picked.empty() ? row : input.picked[static_cast<size_t>(row)];
    float* out = to + row * width_;
    normalize_rows(*input.norm, input.rows + from * width_, 1, width_, out);
    if (input.scale != 1) {
      for (int64_t i = 0; i < width_; ++i) out[i] *= input.scale;
    }
  }
}

const float* CpuStep::rows_of(const Input& input) const {
  if (input.norm == nullptr) return input.rows;
  static thread_local NormedRows kept;
  if (kept.step != number_ || kept.key != input.key) {
    kept.rows.resize(std::max(kept.rows.size(), static_cast<size_t>(input.count * width_)));
    normalize(input, 0, input.count, kept.rows.data());
    kept.step = number_;
    kept.key = input.key;
  }
  return kept.rows.data();
}

void CpuStep::run_norm(const Phase& phase, int64_t begin, int64_t end) const {
  normalize(phase.input, begin, end, phase.output);
}

void CpuStep::run_product(const Phase& phase, int64_t begin, int64_t end) const {
  phase.weights->run({begin, end}, {rows_of(phase.input), phase.residual, phase.input.count, phase.output},
                     PackedWeights::Finish::kNone);
}

void CpuStep::run_feed_forward(const Phase& phase, int64_t begin, int64_t end) const {
  const FeedForwardWeightsView& weights = *phase.feed_forward;
  const bool gated = weights.gate != nullptr;
  const bool relu = weights.activation == PostOp::kRelu;
  const PackedWeights& first = gated ? *weights.gate : *weights.up;
  const float* rows = rows_of(phase.input);
  first.run({begin, end}, {rows, nullptr, tokens_, inner_.data()},
            relu ? PackedWeights::Finish::kRelu : PackedWeights::Finish::kNone);
  if (gated) weights.up->run({begin, end}, {rows, nullptr, tokens_, up_.data()}, PackedWeights::Finish::kNone);
  if (relu && !gated) return;
  const int64_t from = begin * kPanel, to = std::min(end * kPanel, first.outputs());
  for (int64_t row = 0; row < tokens_; ++row) {
    const int64_t at = row * first.outputs() + from;
    if (!relu) activate(weights.activation, inner_.data() + at, to - from);
    if (gated) multiply_by(inner_.data() + at, up_.data() + at, to - from);
  }
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

void CpuStep::run_self_attention(const Phase& phase, int64_t begin, int64_t end) const {
  const AttentionWeightsView& weights = *phase.attention;
  const LayerCache& cache = state_->cache(phase.layer);
  const at::Tensor& bias = state_->positions().bias;
  const int64_t group = weights.heads / weights.key_value_heads;
  KernelShape shape = kernel_shape(weights, cache.keys, layout_->tokens, weights.input->outputs());
  shape.bias_columns = bias.defined() ? bias.size(1) : 0;
  const KernelPointers<float> pointers{projected_.data(), cache.keys.const_data_ptr<float>(),
                                       cache.values.const_data_ptr<float>(),
                                       bias.defined() ? bias.const_data_ptr<float>() : nullptr, context_.data()};
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / weights.key_value_heads, head = item % weights.key_value_heads;
    write_key_value(phase, row, head);
    for (int64_t i = 0; i < group; ++i) attend_head(shape, self_, pointers, row, head * group + i);
  }
}

void CpuStep::run_cross_attention(const Phase& phase, int64_t begin, int64_t end) const {
  const AttentionWeightsView& weights = *phase.attention;
  const CrossCache& source = state_->cross(phase.layer);
  const int64_t group = weights.heads / weights.key_value_heads;
  const KernelShape shape = kernel_shape(weights, source.keys, layout_->tokens, weights.input->outputs());
  const KernelPointers<float> pointers{projected_.data(), source.keys.const_data_ptr<float>(),
                                       source.values.const_data_ptr<float>(), nullptr, context_.data()};
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / weights.key_value_heads, head = item % weights.key_value_heads;
    for (int64_t i = 0; i < group; ++i) attend_head(shape, cross_, pointers, row, head * group + i);
  }
}

}  // namespace draftsmith::model
