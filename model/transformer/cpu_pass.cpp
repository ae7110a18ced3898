#include "model/transformer/cpu_pass.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>

#include "base/signals.h"
#include "model/cpu/block_attention.h"
#include "model/cpu/row_operations.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {

namespace {

// Rows that each thread norms for itself: fewer take less time than one more phase.
constexpr int64_t kNormedByAll = 4;

// Returns a number that no other pass of the process has.
uint64_t next_pass() {
  static std::atomic<uint64_t> passes{0};
  return ++passes;
}

// Numbers that a buffer keeps anyway.
constexpr int64_t kKept = 1 << 22;

// Rows that a thread has normed.
struct NormedRows {
  uint64_t pass = 0;
  int64_t key = 0;
  std::vector<float> rows;
};

}  // namespace

void CpuPass::Buffer::fit(int64_t numbers) {
  const bool too_large = size_ > kKept && 0 < numbers && numbers < size_ / 8;
  if (numbers <= size_ && !too_large) return;
  memory_.reset();
  memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(numbers));
  size_ = numbers;
}

void CpuPass::begin_pass(int64_t rows, int64_t width, std::span<const LayerWeightsView> layers) {
  number_ = next_pass();
  rows_ = rows;
  width_ = width;
  norms_ = 0;
  phases_.clear();
  for (Buffer* buffer : {&buffers_[0], &buffers_[1], &normed_}) buffer->fit(rows * width);
  int64_t projected = 0, context = 0, inner = 0, up = 0;  // of the largest layer
  for (const LayerWeightsView& layer : layers) {
    const int64_t wide = layer.feed_forward.up->outputs();
    projected = std::max(projected, layer.self.input->outputs());
    context = std::max(context, layer.self.inner());
    inner = std::max(inner, wide);
    if (layer.feed_forward.gate != nullptr) up = std::max(up, wide);
  }
  projected_.fit(rows * projected);
  context_.fit(rows * context);
  inner_.fit(rows * inner);
  up_.fit(rows * up);
}

CpuPass::Input CpuPass::normed(Input input) {
  if (input.count <= kNormedByAll) {
    input.key = ++norms_;
    return input;
  }
  phases_.push_back({.work = Work::kNorm, .items = input.count, .input = input, .output = normed_.data()});
  return {.rows = normed_.data(), .count = input.count};
}

void CpuPass::add_product(const Input& input, const PackedWeights& weights, const float* residual, float* output) {
  phases_.push_back({.work = Work::kProduct,
                     .items = weights.panels(),
                     .input = input,
                     .weights = &weights,
                     .residual = residual,
                     .output = output});
}

void CpuPass::add_feed_forward(const FeedForwardWeightsView& weights, const float* input, const float* residual,
                               float* output) {
  phases_.push_back({.work = Work::kFeedForward,
                     .items = weights.up->panels(),
                     .input = normed(all_rows(input, &weights.norm)),
                     .feed_forward = &weights});
  add_product(all_rows(inner_.data()), *weights.down, residual, output);
}

void CpuPass::run() {
  Team::current().run(*this);
}

void CpuPass::run_part() {
  run();
  phases_.clear();
  number_ = next_pass();  // what was kept for a phase is found by its number
  work_point();
}

void CpuPass::run(int64_t phase, int64_t begin, int64_t end) const {
  const Phase& found = phases_[static_cast<size_t>(phase)];
  switch (found.work) {
    case Work::kNorm:
      return normalize(found.input, begin, end, found.output);
    case Work::kProduct:
      return multiply(found, begin, end);
    case Work::kFeedForward:
      return feed_forward(found, begin, end);
    default:
      return compute(found, begin, end);
  }
}

void CpuPass::normalize(const Input& input, int64_t begin, int64_t end, float* to) const {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = input.picked.empty() ? row : input.picked[static_cast<size_t>(row)];
    float* out = to + row * width_;
    normalize_rows(*input.norm, input.rows + from * width_, 1, width_, out);
    if (input.scale != 1) {
      for (int64_t i = 0; i < width_; ++i) out[i] *= input.scale;
    }
  }
}

const float* CpuPass::rows_of(const Input& input) const {
  if (input.norm == nullptr) return input.rows;
  static thread_local NormedRows kept;
  if (kept.pass != number_ || kept.key != input.key) {
    kept.rows.resize(std::max(kept.rows.size(), static_cast<size_t>(input.count * width_)));
    normalize(input, 0, input.count, kept.rows.data());
    kept.pass = number_;
    kept.key = input.key;
  }
  return kept.rows.data();
}

uint64_t CpuPass::number_of(const Phase& phase) const {
  constexpr int kBits = 16;  // of a phase: models have fewer layers
  return number_ << kBits | static_cast<uint64_t>(&phase - phases_.data());
}

void CpuPass::multiply(const Phase& phase, int64_t begin, int64_t end) const {
  phase.weights->run({begin, end},
                     {rows_of(phase.input), phase.residual, phase.input.count, phase.output, number_of(phase)},
                     PackedWeights::Finish::kNone);
}

void CpuPass::feed_forward(const Phase& phase, int64_t begin, int64_t end) const {
  const FeedForwardWeightsView& weights = *phase.feed_forward;
  const bool gated = weights.gate != nullptr;
  const bool relu = weights.activation == PostOp::kRelu;
  const PackedWeights& first = gated ? *weights.gate : *weights.up;
  const float* rows = rows_of(phase.input);
  first.run({begin, end}, {rows, nullptr, rows_, inner_.data(), number_of(phase)},
            relu ? PackedWeights::Finish::kRelu : PackedWeights::Finish::kNone);
  if (gated)
    weights.up->run({begin, end}, {rows, nullptr, rows_, up_.data(), number_of(phase)}, PackedWeights::Finish::kNone);
  if (relu && !gated) return;
  const int64_t from = begin * kPanel, to = std::min(end * kPanel, first.outputs());
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t at = row * first.outputs() + from;
    if (!relu) activate(weights.activation, inner_.data() + at, to - from);
    if (gated) multiply_by(inner_.data() + at, up_.data() + at, to - from);
  }
}

// ---- Steps of a decoder

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

// ---- An encoder

namespace {

// Tokens of rows that are computed together, unless one row has more: many enough for the rate of products, few enough
// to keep their memory.
constexpr int64_t kTokensAtOnce = 1024;

// Calls compute(begin, end) for groups of the rows of states [B,S,D].
template <class Compute>
void in_groups(const at::Tensor& states, const Compute& compute) {
  const int64_t rows = states.size(0),
                most = std::max<int64_t>(1, kTokensAtOnce / std::max<int64_t>(1, states.size(1)));
  for (int64_t begin = 0; begin < rows; begin += most) {
    work_point();
    compute(begin, std::min(begin + most, rows));
  }
}

}  // namespace

CpuEncoder& CpuEncoder::of_thread() {
  static thread_local CpuEncoder encoder;
  return encoder;
}

void CpuEncoder::encode(const Layers& layers, const std::vector<int64_t>& lengths, const at::Tensor& hidden) {
  lengths_ = &lengths;
  tokens_ = hidden.size(1);
  bias_ = layers.bias.defined() ? layers.bias.contiguous() : at::Tensor();
  in_groups(hidden, [&](int64_t begin, int64_t end) { encode_rows(layers, hidden, begin, end); });
  bias_ = at::Tensor();
}

void CpuEncoder::encode_rows(const Layers& layers, const at::Tensor& hidden, int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  first_row_ = begin;
  begin_pass(rows * tokens_, hidden.size(2), layers.weights);
  const AttentionWeightsView& heads = layers.weights.front().self;
  const int64_t part =
      block_tokens(tokens_, rows * heads.key_value_heads, heads.heads / heads.key_value_heads, at::get_num_threads());
  auto* output = hidden.mutable_data_ptr<float>() + begin * tokens_ * hidden.size(2);
  for (const LayerWeightsView& layer : layers.weights) {
    const AttentionWeightsView& self = layer.self;
    add_product(normed(all_rows(output, &self.norm)), *self.input, nullptr, projected_.data());
    Phase attention{.work = Work::kSelfAttention, .attention = &self, .part = part};
    attention.items = rows * self.key_value_heads * attention.parts(tokens_);
    phases_.push_back(attention);
    add_product(all_rows(context_.data()), *self.output, output, output);
    add_feed_forward(layer.feed_forward, output, output, output);
    if (2 * rows_ >= kLongPass) run_part();
  }
  phases_.push_back(
      {.work = Work::kNorm, .items = rows_, .input = all_rows(output, &layers.final_norm), .output = output});
  run();
}

std::vector<CrossCache> CpuEncoder::cross_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states) {
  tokens_ = states.size(1);
  caches_.clear();  // of a call that was ended
  for (const LayerWeightsView& layer : decoder) {
    const AttentionWeightsView& cross = *layer.cross;
    const std::vector<int64_t> shape{states.size(0), cross.key_value_heads, tokens_, cross.head_width};
    caches_.push_back({at::empty(shape, at::kFloat), at::empty(shape, at::kFloat)});
  }
  const at::Tensor input = states.contiguous();
  in_groups(input, [&](int64_t begin, int64_t end) { fill_caches(decoder, input, begin, end); });
  return std::exchange(caches_, {});
}

void CpuEncoder::fill_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states, int64_t begin,
                             int64_t end) {
  first_row_ = begin;
  begin_pass((end - begin) * tokens_, states.size(2), {});
  const float* input = states.const_data_ptr<float>() + begin * tokens_ * states.size(2);
  int64_t outputs = 0;
  for (const LayerWeightsView& layer : decoder) outputs = std::max(outputs, layer.cross->key_value->outputs());
  key_value_.fit(rows_ * outputs);
  for (int64_t i = 0; i < std::ssize(decoder); ++i) {
    const AttentionWeightsView& cross = *decoder[static_cast<size_t>(i)].cross;
    add_product(all_rows(input), *cross.key_value, nullptr, key_value_.data());
    phases_.push_back(
        {.work = Work::kSplit, .items = (end - begin) * cross.key_value_heads, .attention = &cross, .layer = i});
    if (2 * rows_ >= kLongPass) run_part();
  }
  run();
}

void CpuEncoder::compute(const Phase& phase, int64_t begin, int64_t end) const {
  const int64_t heads = phase.attention->key_value_heads;
  for (int64_t item = begin; item < end; ++item) {
    if (phase.work == Work::kSplit) {
      split(phase, item / heads, item % heads);
    } else {
      const int64_t parts = phase.parts(tokens_);
      attend(phase, item / parts / heads, item / parts % heads, item % parts);
    }
  }
}

void CpuEncoder::attend(const Phase& phase, int64_t row, int64_t head, int64_t part) const {
  const AttentionWeightsView& weights = *phase.attention;
  const int64_t stride = weights.input->outputs(), width = weights.head_width;
  const int64_t group = weights.heads / weights.key_value_heads, distances = 2 * tokens_ - 1;
  const float* first = projected_.data() + row * tokens_ * stride;
  const float* keys = first + weights.inner() + head * width;
  float* context = context_.data() + row * tokens_ * weights.inner() + head * group * width;
  const int64_t length = std::min((*lengths_)[static_cast<size_t>(first_row_ + row)], tokens_);
  const int64_t begin = part * phase.part, end = std::min(begin + phase.part, tokens_);
  const float* bias =
      bias_.defined() ? bias_.const_data_ptr<float>() + head * group * distances + tokens_ - 1 : nullptr;
  attend_blocks({.query = first + head * group * width,
                 .keys = keys,
                 .values = keys + weights.shared_inner(),
                 .bias = bias,
                 .context = context,
                 .heads = group,
                 .width = width,
                 .prefix = length,
                 .query_stride = stride,
                 .key_stride = stride,
                 .context_stride = weights.inner(),
                 .bias_stride = distances,
                 .scale = weights.scale},
                begin, std::min(end, length));
  for (int64_t t = std::max(begin, length); t < end; ++t) {
    std::fill_n(context + t * weights.inner(), group * width, 0.0F);
  }
}

// Copies a head's keys and values to the caches: [S,K].
void CpuEncoder::split(const Phase& phase, int64_t row, int64_t head) const {
  const AttentionWeightsView& weights = *phase.attention;
  const CrossCache& cache = caches_[static_cast<size_t>(phase.layer)];
  const int64_t width = weights.head_width;
  const int64_t place = ((first_row_ + row) * weights.key_value_heads + head) * tokens_ * width;
  for (int64_t t = 0; t < tokens_; ++t) {
    const float* key = key_value_.data() + (row * tokens_ + t) * weights.key_value->outputs() + head * width;
    const auto bytes = static_cast<size_t>(width) * sizeof(float);
    std::memcpy(cache.keys.mutable_data_ptr<float>() + place + t * width, key, bytes);
    std::memcpy(cache.values.mutable_data_ptr<float>() + place + t * width, key + weights.shared_inner(), bytes);
  }
}

}  // namespace draftsmith::model
