#include "model/transformer/cpu_pass.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/signals.h"
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

// Replaces numbers y by x + factor y.
void add_scaled(const float* x, float factor, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] + factor * y[i];
}

}  // namespace

void CpuPass::Buffer::fit(int64_t numbers) {
  const bool too_large = size_ > kKept && 0 < numbers && numbers < size_ / 8;
  if (numbers <= size_ && !too_large) return;
  memory_.reset();
  size_ = 0;  // should there be no memory
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

void CpuPass::add_product(const Input& input, const PackedWeights& weights, float* output) {
  phases_.push_back(
      {.work = Work::kProduct, .items = weights.panels(), .input = input, .weights = &weights, .output = output});
}

CpuPass::Sublayer CpuPass::begin_sublayer(const LayerWeightsView& layer, const RowNorm& norm, const RowNorm& behind,
                                          const float* read) {
  Sublayer sublayer{.layer = &layer, .norm = &behind, .residual = all_rows(stream_.rows)};
  if (norms_input(layer.norm_place)) {
    sublayer.input = normed(all_rows(read, &norm));
  } else {
    if (stream_.norm != nullptr) sublayer.residual = normed(all_rows(stream_.rows, stream_.norm));
    sublayer.input = sublayer.residual;
  }
  return sublayer;
}

void CpuPass::end_sublayer(const Sublayer& sublayer, const float* inner, const PackedWeights& weights, float* to) {
  const NormPlace place = sublayer.layer->norm_place;
  const bool norms = norms_output(place);
  add_product(all_rows(inner), weights, norms ? normed_.data() : to);
  if (norms) {
    phases_.push_back(
        {.work = Work::kNorm, .items = rows_, .input = all_rows(normed_.data(), sublayer.norm), .output = to});
  }
  phases_.back().residual = sublayer.residual;
  phases_.back().scale = sublayer.layer->residual_scale;
  stream_ = {to, place == NormPlace::kAfterSum ? sublayer.norm : nullptr};
}

void CpuPass::add_feed_forward(const LayerWeightsView& layer, const float* read, float* to) {
  const FeedForwardWeightsView& weights = layer.feed_forward;
  const Sublayer sublayer = begin_sublayer(layer, weights.norm, weights.output_norm, read);
  phases_.push_back(
      {.work = Work::kFeedForward, .items = weights.up->panels(), .input = sublayer.input, .feed_forward = &weights});
  end_sublayer(sublayer, inner_.data(), *weights.down, to);
}

void CpuPass::settle(float* to) {
  if (stream_.norm == nullptr && stream_.rows == to) return;
  phases_.push_back({.work = Work::kNorm, .items = rows_, .input = all_rows(stream_.rows, stream_.norm), .output = to});
  stream_ = {to};
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
      normalize(found.input, begin, end, found.output);
      if (found.residual.rows != nullptr) {
        const int64_t from = begin * width_;
        add_scaled(found.residual.rows + from, found.scale, found.output + from, (end - begin) * width_);
      }
      return;
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
    const float* x = input.rows + from * width_;
    float* out = to + row * width_;
    if (input.norm == nullptr) std::copy_n(x, width_, out);
    if (input.norm != nullptr) normalize_rows(*input.norm, x, 1, width_, out);
    if (input.scale != 1) {
      for (int64_t i = 0; i < width_; ++i) out[i] *= input.scale;
    }
  }
}

const float* CpuPass::rows_of(const Input& input) const {
  if (input.key == 0) return input.rows;
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

// Of input and residual, threads norm one at most for themselves: they keep one input's rows.
void CpuPass::multiply(const Phase& phase, int64_t begin, int64_t end) const {
  const float* residual = rows_of(phase.residual);
  const bool scaled = phase.scale != 1;
  phase.weights->run(
      {begin, end},
      {rows_of(phase.input), scaled ? nullptr : residual, phase.input.count, phase.output, number_of(phase)},
      PackedWeights::Finish::kNone);
  if (!scaled) return;
  const int64_t outputs = phase.weights->outputs();
  const int64_t from = begin * kPanel, to = std::min(end * kPanel, outputs);
  for (int64_t row = 0; row < phase.input.count; ++row) {
    add_scaled(residual + row * outputs + from, phase.scale, phase.output + row * outputs + from, to - from);
  }
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
  set_input(input());
}

void CpuStep::add_attention(Work work, const AttentionWeightsView& weights, int64_t layer) {
  const int64_t heads = std::ssize(layout_->base) * weights.key_value_heads;
  const KernelShape shape = shape_of(work, weights, layer);
  const VisibleKeys& visible = work == Work::kSelfAttention ? self_ : cross_;
  if (weights.query_norm.weight != nullptr && weights.norms_width) {
    phases_.push_back({.work = Work::kHeadNorm, .items = rows_, .attention = &weights});
  }
  Phase phase{.work = work, .items = heads, .attention = &weights, .layer = layer};
  phase.part = tokens_of_part(shape, visible);
  phase.items = heads * phase.parts(layout_->tokens);
  if (phase.part > 0 && work == Work::kSelfAttention) {
    phases_.push_back({.work = Work::kSplit, .items = heads, .attention = &weights, .layer = layer});
  }
  phases_.push_back(phase);
}

void CpuStep::add_layer(const LayerWeightsView& weights, int64_t layer, float* output, const float* projected) {
  const float* before = stream_.rows;
  const bool in_place = weights.adds_in_place();
  float* to = in_place && output != nullptr ? output : other_than(before);
  const auto next = [&] { return to = in_place ? to : other_than(to); };
  const Sublayer self =
      projected == nullptr
          ? begin_sublayer(weights, weights.self.norm, weights.self.output_norm, before)
          : Sublayer{&weights, &weights.self.output_norm, {.rows = projected, .count = rows_}, all_rows(before)};
  add_product(self.input, *weights.self.input, projected_.data());
  add_attention(Work::kSelfAttention, weights.self, layer);
  end_sublayer(self, context_.data(), *weights.self.output, to);
  if (weights.cross) {
    const Sublayer cross = begin_sublayer(weights, weights.cross->norm, weights.cross->output_norm, stream_.rows);
    add_product(cross.input, *weights.cross->input, projected_.data());
    add_attention(Work::kCrossAttention, *weights.cross, layer);
    end_sublayer(cross, context_.data(), *weights.cross->output, next());
  }
  add_feed_forward(weights, weights.parallel_residual ? before : stream_.rows, next());
  if (output != nullptr) settle(output);
}

void CpuStep::add_head(const HeadPass& pass) {
  head_norm_ = pass.norm;
  const bool norms = head_norm_.weight != nullptr;
  if (norms && stream_.norm != nullptr) settle(other_than(stream_.rows));
  const Input rows{.rows = stream_.rows,
                   .count = std::ssize(pass.rows),
                   .norm = norms ? &head_norm_ : stream_.norm,
                   .scale = pass.scale,
                   .picked = pass.rows};
  add_product(normed(rows), *pass.head, pass.logits);
}

void CpuStep::norm_heads(const AttentionWeightsView& weights, int64_t token) const {
  float* query = projected_.data() + token * weights.input->outputs();
  float* key = query + weights.inner();
  normalize_rows(weights.query_norm, query, 1, weights.inner(), query);
  normalize_rows(weights.key_norm, key, 1, weights.shared_inner(), key);
}

// Norms and rotates the keys of a head and the queries that read it, and writes keys and values to the cache.
void CpuStep::write_key_value(const Phase& phase, int64_t row, int64_t head) const {
  const AttentionWeightsView& weights = *phase.attention;
  const LayerCache& cache = state_->cache(phase.layer);
  const RotaryTable& rotary = state_->positions().rotary_of(weights.window > 0);
  const int64_t width = weights.head_width, group = weights.heads / weights.key_value_heads;
  const int64_t cached = cache.keys.size(2) * width;  // numbers of a head
  const int64_t place = (state_->cache_rows()[static_cast<size_t>(row)] * weights.key_value_heads + head) * cached;
  const int64_t base = layout_->base[static_cast<size_t>(row)];
  const bool norms = weights.query_norm.weight != nullptr && !weights.norms_width;
  for (int64_t j = 0; j < layout_->new_tokens[static_cast<size_t>(row)]; ++j) {
    float* token = projected_.data() + (row * layout_->tokens + j) * weights.input->outputs();
    float* query = token + head * group * width;
    float* key = token + weights.inner() + head * width;
    if (norms) {
      normalize_rows(weights.query_norm, query, group, width, query);
      normalize_rows(weights.key_norm, key, 1, width, key);
    }
    if (weights.rotates) {
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
  const at::Tensor& bias = state_->positions().bias_of(layer);
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
  shape.score_cap = weights.score_cap;
  shape.window = weights.window;
  return shape;
}

void CpuStep::compute(const Phase& phase, int64_t begin, int64_t end) const {
  const AttentionWeightsView& weights = *phase.attention;
  const int64_t heads = weights.key_value_heads;
  if (phase.work == Work::kHeadNorm) {
    for (int64_t token = begin; token < end; ++token) norm_heads(weights, token);
    return;
  }
  if (phase.work == Work::kSplit) {
    for (int64_t item = begin; item < end; ++item) write_key_value(phase, item / heads, item % heads);
    return;
  }
  const bool self = phase.work == Work::kSelfAttention;
  const at::Tensor& keys = self ? state_->cache(phase.layer).keys : state_->cross(phase.layer).keys;
  const at::Tensor& values = self ? state_->cache(phase.layer).values : state_->cross(phase.layer).values;
  const at::Tensor& bias = state_->positions().bias_of(phase.layer);
  const VisibleKeys& visible = self ? self_ : cross_;
  const KernelShape shape = shape_of(phase.work, weights, phase.layer);
  const KernelPointers pointers{projected_.data(), keys.const_data_ptr<float>(), values.const_data_ptr<float>(),
                                shape.bias_columns > 0 ? bias.const_data_ptr<float>() : nullptr, context_.data()};
  const int64_t parts = phase.parts(layout_->tokens);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / parts / heads, head = item / parts % heads;
    const int64_t part = phase.part > 0 ? phase.part : layout_->tokens, first = item % parts * part;
    if (self && phase.part == 0) write_key_value(phase, row, head);
    attend_part(shape, visible, pointers, {row, head, first, std::min(first + part, layout_->tokens)});
  }
}

}  // namespace draftsmith::model
