// Decoding steps of a packed model on a CPU, from tokens to logits. They allocate nothing from the second step of a
// size on, apart from what callers keep.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "model/cpu/block_attention.h"
#include "model/layers/dense_attention.h"
#include "model/transformer/cpu_pass.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/stack.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {

// ---- Parts of a step
// Layers over their caches, and the head.

// Rows of hidden states that become logits: finished hidden states W^T, of rows [rows] of a step's tokens.
struct HeadPass {
  RowNorm norm;
  float scale = 1;  // of normed states
  const PackedWeights* head = nullptr;
  std::span<const int64_t> rows = {};
  float* logits = nullptr;  // [rows,V]
};

class CpuStep final : public CpuPass {
 public:
  // Returns the calling thread's, which keeps its memory from step to step.
  static CpuStep& of_thread();

  // Begins a step with layers of these, whose hidden states have `width` numbers. The state has room for the layout
  // (make_room()). All that is given outlives run().
  void begin(const StepLayout& layout, DecoderState& state, int64_t width, std::span<const LayerWeightsView> layers);
  // Returns memory for the input of the first layer: [B*L,D].
  float* input() { return buffers_[0].data(); }
  // Sets the input of the first layer, where it is not in that memory.
  void set_input(const float* hidden) { hidden_ = hidden; }
  // Adds a layer, which reads what the last one wrote, and writes to `output` [B*L,D]; null: to memory of this step.
  void add_layer(const LayerWeightsView& weights, int64_t layer, float* output = nullptr);
  // Adds the head.
  void add_head(const HeadPass& pass);

 private:
  // Computes attention, to the prefix or to the source.
  void compute(const Phase& phase, int64_t begin, int64_t end) const override;
  KernelShape shape_of(Work work, const AttentionWeightsView& weights, int64_t layer) const;
  void add_attention(Work work, const AttentionWeightsView& weights, int64_t layer);
  void write_key_value(const Phase& phase, int64_t row, int64_t head) const;

  const StepLayout* layout_ = nullptr;
  DecoderState* state_ = nullptr;
  VisibleKeys self_;
  VisibleKeys cross_;
  RowNorm head_norm_;
  const float* hidden_ = nullptr;
};

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

namespace {

template <class T>
void add_rows(const at::Tensor& table, const std::vector<int64_t>& rows, bool first, float* to) {
  const int64_t width = table.size(1);
  const T* from = table.const_data_ptr<T>();
  for (const int64_t row : rows) {
    const T* numbers = from + row * width;
    for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(numbers[i]) + (first ? 0.0F : to[i]);
    to += width;
  }
}

// Writes rows of a table [N,D] to `to`, or adds them.
void gather(const at::Tensor& table, const std::vector<int64_t>& rows, bool first, float* to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, table.scalar_type(), "embed",
                                  [&] { add_rows<scalar_t>(table, rows, first, to); });
}

// Sets `rows` to the rows of a step's tokens that get logits: each row's last new token, or all.
void pick_rows(const StepLayout& layout, Logits logits, std::vector<int64_t>& rows) {
  rows.clear();
  for (size_t b = 0; b < layout.base.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * layout.tokens;
    if (logits == Logits::kLast) {
      rows.push_back(first + std::max<int64_t>(0, layout.new_tokens[b] - 1));
      continue;
    }
    for (int64_t j = 0; j < layout.tokens; ++j) rows.push_back(first + j);
  }
}

}  // namespace

// Tokens from which on a step, of long prompts, is computed layer by layer: each may take a second.
constexpr int64_t kLongStep = 1024;

bool TransformerModel::takes_cpu_steps() const {
  const auto stored = [](const at::Tensor& table) { return table.is_cpu() && table.is_contiguous(); };
  const auto fits = [](const RowNorm& norm) { return norm.weight != nullptr; };
  return !parts_->decoder.packed_views().empty() && parts_->head.own_weights() != nullptr &&
         fits(parts_->decoder.final_row_norm()) && stored(parts_->embedding) &&
         (!parts_->embedding_norm || fits(parts_->embedding_norm->row_norm())) &&
         (!parts_->positions.defined() || stored(parts_->positions));
}

void TransformerModel::embed_on_cpu(const at::Tensor& tokens, const StepLayout& layout, float* to) const {
  static thread_local std::vector<int64_t> rows;
  const at::Tensor ids = tokens.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  rows.clear();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] < 0 || id[i] >= config_.vocabulary) throw std::logic_error("a token is outside the vocabulary");
    rows.push_back(parts_->vocabulary_rows.row_of(id[i]));
  }
  gather(parts_->embedding, rows, true, to);
  if (parts_->positions.defined()) {
    rows.clear();
    for (const int64_t base : layout.base) {
      for (int64_t j = 0; j < layout.tokens; ++j) {
        rows.push_back(std::min(base + (layout.siblings ? 0 : j), parts_->positions.size(0) - 1));
      }
    }
    gather(parts_->positions, rows, false, to);
  }
  if (parts_->embedding_norm) {
    const int64_t width = config_.width;
    normalize_rows(parts_->embedding_norm->row_norm(), to, ids.numel(), width, to);
  }
}

StepOutput TransformerModel::run_on_cpu(const StepPart& part, const StepLayout& layout, DecoderState& state) const {
  const auto views = parts_->decoder.packed_views();
  const std::array<int64_t, 3> shape{state.rows(), layout.tokens, config_.width};
  for (int64_t i = part.layers.begin; i < part.layers.end; ++i) state.make_room(i, layout);
  CpuStep& step = CpuStep::of_thread();
  step.begin(layout, state, config_.width, views);
  StepOutput output;
  output.hidden.resize(part.hidden_layers.size());
  // Returns memory for the output of a layer if it is wanted, else null.
  const auto wanted = [&](int64_t layer) -> float* {
    const auto found = std::find(part.hidden_layers.begin(), part.hidden_layers.end(), layer);
    if (found == part.hidden_layers.end()) return nullptr;
    at::Tensor& tensor = output.hidden[static_cast<size_t>(found - part.hidden_layers.begin())];
    tensor = host_empty(shape, at::kFloat);
    return tensor.mutable_data_ptr<float>();
  };
  float* first = wanted(part.layers.begin);
  if (first == nullptr) first = step.input();
  if (part.hidden.defined()) {
    const at::Tensor given = part.hidden.contiguous();
    std::memcpy(first, given.const_data_ptr<float>(), static_cast<size_t>(given.numel()) * sizeof(float));
  } else {
    embed_on_cpu(part.tokens, layout, first);
  }
  step.set_input(first);
  const bool is_long = state.rows() * layout.tokens >= kLongStep;
  for (int64_t i = part.layers.begin; i < part.layers.end; ++i) {
    step.add_layer(views[static_cast<size_t>(i)], i, wanted(i + 1));
    if (is_long) step.run_part();
  }
  static thread_local std::vector<int64_t> rows;
  if (part.logits != Logits::kNone) {
    pick_rows(layout, part.logits, rows);
    const int64_t picked = part.logits == Logits::kLast ? 1 : layout.tokens;
    output.logits = state.logits_of({state.rows(), picked, parts_->head.own_weights()->outputs()});
    step.add_head({.norm = parts_->decoder.final_row_norm(),
                   .scale = static_cast<float>(config_.output_scale),
                   .head = parts_->head.own_weights(),
                   .rows = rows,
                   .logits = output.logits.mutable_data_ptr<float>()});
  }
  step.run();
  if (output.logits.defined() && parts_->vocabulary_rows.pruned()) {
    output.logits = parts_->vocabulary_rows.spread(output.logits, -std::numeric_limits<double>::infinity());
  }
  return output;
}

}  // namespace draftsmith::model
