#include "model/transformer/cpu_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/cpu/attention_kernel.h"

namespace draftsmith::model {

CpuEncoder& CpuEncoder::of_thread() {
  static thread_local CpuEncoder encoder;
  return encoder;
}

void CpuEncoder::encode(const Layers& layers, const std::vector<int64_t>& lengths, const at::Tensor& hidden) {
  lengths_ = &lengths;
  tokens_ = hidden.size(1);
  bias_ = layers.bias.defined() ? layers.bias.contiguous() : at::Tensor();
  begin_pass(hidden.size(0) * tokens_, hidden.size(2), layers.weights);
  auto* output = hidden.mutable_data_ptr<float>();
  for (const LayerWeightsView& layer : layers.weights) {
    add_product(normed(all_rows(output, &layer.self.norm)), *layer.self.input, nullptr, projected_.data());
    phases_.push_back(
        {.work = Work::kSelfAttention, .items = hidden.size(0) * layer.self.heads, .attention = &layer.self});
    add_product(all_rows(context_.data()), *layer.self.output, output, output);
    add_feed_forward(layer.feed_forward, output, output, output);
  }
  phases_.push_back(
      {.work = Work::kNorm, .items = rows_, .input = all_rows(output, &layers.final_norm), .output = output});
  run();
  bias_ = at::Tensor();
}

std::vector<CrossCache> CpuEncoder::cross_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states) {
  const int64_t sources = states.size(0);
  tokens_ = states.size(1);
  begin_pass(sources * tokens_, states.size(2), {});
  const at::Tensor input = states.contiguous();
  for (const LayerWeightsView& layer : decoder) key_value_.fit(rows_ * layer.cross->key_value->outputs());
  for (const LayerWeightsView& layer : decoder) {
    const AttentionWeightsView& cross = *layer.cross;
    const std::vector<int64_t> shape{sources, cross.key_value_heads, tokens_, cross.head_width};
    add_product(all_rows(input.const_data_ptr<float>()), *cross.key_value, nullptr, key_value_.data());
    phases_.push_back({.work = Work::kSplit,
                       .items = sources * cross.key_value_heads,
                       .attention = &cross,
                       .layer = std::ssize(caches_)});
    caches_.push_back({at::empty(shape, at::kFloat), at::empty(shape, at::kFloat)});
  }
  run();
  return std::exchange(caches_, {});
}

void CpuEncoder::compute(const Phase& phase, int64_t begin, int64_t end) const {
  const bool attends = phase.work == Work::kSelfAttention;
  const int64_t heads = attends ? phase.attention->heads : phase.attention->key_value_heads;
  for (int64_t item = begin; item < end; ++item) {
    attends ? attend(phase, item / heads, item % heads) : split(phase, item / heads, item % heads);
  }
}

void CpuEncoder::attend(const Phase& phase, int64_t row, int64_t head) const {
  const AttentionWeightsView& weights = *phase.attention;
  const int64_t stride = weights.input->outputs(), width = weights.head_width;
  const float* first = projected_.data() + row * tokens_ * stride;
  const float* keys = first + weights.inner() + head * weights.key_value_heads / weights.heads * width;
  float* context = context_.data() + row * tokens_ * weights.inner() + head * width;
  const int64_t length = std::min((*lengths_)[static_cast<size_t>(row)], tokens_);
  attend_sequence({.query = first + head * width,
                   .keys = keys,
                   .values = keys + weights.shared_inner(),
                   .bias = bias_.defined() ? bias_.const_data_ptr<float>() + head * tokens_ * tokens_ : nullptr,
                   .context = context,
                   .tokens = length,
                   .stride = stride,
                   .bias_stride = tokens_,
                   .context_stride = weights.inner(),
                   .width = width,
                   .scale = weights.scale});
  for (int64_t t = length; t < tokens_; ++t) std::fill_n(context + t * weights.inner(), width, 0.0F);
}

// Copies a head's keys and values to the caches: [S,K].
void CpuEncoder::split(const Phase& phase, int64_t row, int64_t head) const {
  const AttentionWeightsView& weights = *phase.attention;
  const CrossCache& cache = caches_[static_cast<size_t>(phase.layer)];
  const int64_t width = weights.head_width;
  const int64_t place = (row * weights.key_value_heads + head) * tokens_ * width;
  for (int64_t t = 0; t < tokens_; ++t) {
    const float* key = key_value_.data() + (row * tokens_ + t) * weights.key_value->outputs() + head * width;
    const auto bytes = static_cast<size_t>(width) * sizeof(float);
    std::memcpy(cache.keys.mutable_data_ptr<float>() + place + t * width, key, bytes);
    std::memcpy(cache.values.mutable_data_ptr<float>() + place + t * width, key + weights.shared_inner(), bytes);
  }
}

}  // namespace draftsmith::model
