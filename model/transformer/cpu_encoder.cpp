// The encoder of cpu_pass.h.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "base/signals.h"
#include "model/cpu/block_attention.h"
#include "model/transformer/cpu_pass.h"

namespace draftsmith::model {
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
  biases_.clear();
  for (const at::Tensor& bias : layers.biases) {
    if (bias.defined()) biases_.push_back(bias.contiguous());
  }
  in_groups(hidden, [&](int64_t begin, int64_t end) { encode_rows(layers, hidden, begin, end); });
  biases_.clear();
}

void CpuEncoder::encode_rows(const Layers& layers, const at::Tensor& hidden, int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  first_row_ = begin;
  begin_pass(rows * tokens_, hidden.size(2), layers.weights);
  const AttentionWeightsView& heads = layers.weights.front().self;
  const int64_t part =
      block_tokens(tokens_, rows * heads.key_value_heads, heads.heads / heads.key_value_heads, at::get_num_threads());
  auto* output = hidden.mutable_data_ptr<float>() + begin * tokens_ * hidden.size(2);
  stream_ = {output};
  float* to = output;
  for (int64_t i = 0; i < std::ssize(layers.weights); ++i) {
    const LayerWeightsView& layer = layers.weights[static_cast<size_t>(i)];
    const AttentionWeightsView& self = layer.self;
    const auto next = [&] { return to = layer.adds_in_place() ? to : other_than(to); };
    const Sublayer sublayer = begin_sublayer(layer, self.norm, self.output_norm, stream_.rows);
    add_product(sublayer.input, *self.input, projected_.data());
    Phase attention{.work = Work::kSelfAttention, .attention = &self, .layer = i, .part = part};
    attention.items = rows * self.key_value_heads * attention.parts(tokens_);
    phases_.push_back(attention);
    end_sublayer(sublayer, context_.data(), *self.output, next());
    add_feed_forward(layer, stream_.rows, next());
    if (2 * rows_ >= kLongPass) run_part();
  }
  if (layers.final_norm.weight != nullptr) {
    if (stream_.norm != nullptr) settle(other_than(to));
    stream_.norm = &layers.final_norm;
  }
  settle(output);
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
    add_product(all_rows(input), *cross.key_value, key_value_.data());
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
  const float* bias = bias_of(phase.layer);
  if (bias != nullptr) bias += head * group * distances + tokens_ - 1;
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

const float* CpuEncoder::bias_of(int64_t layer) const {
  if (biases_.empty()) return nullptr;
  return biases_[biases_.size() == 1 ? 0 : static_cast<size_t>(layer)].const_data_ptr<float>();
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
