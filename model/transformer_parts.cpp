#include "model/transformer_parts.h"

#include <algorithm>
#include <stdexcept>

namespace draftsmith::model {
namespace {

// Columns of the bias table that a decode state begins with.
constexpr int64_t kFirstBiasColumns = 65;

ParameterLookup lookup(const std::map<std::string, at::Tensor>& parameters) {
  return [&parameters](const std::string& name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? at::Tensor() : found->second;
  };
}

VisibleKeys self_keys(const StepLayout& layout, const DecoderState& state) {
  VisibleKeys visible;
  visible.first = layout.base;
  visible.queries = layout.new_tokens;
  visible.growing = !layout.siblings;
  visible.own_slot = layout.siblings;
  visible.cache_row = state.cache_rows();
  for (int64_t& first : visible.first) {
    first += layout.siblings ? 0 : 1;
  }
  return visible;
}

VisibleKeys cross_keys(const StepLayout& layout, const DecoderState& state) {
  VisibleKeys visible;
  visible.cache_row = state.source_of_row();
  visible.queries = layout.new_tokens;
  for (size_t b = 0; b < visible.cache_row.size(); ++b) {
    visible.first.push_back(state.source_length(static_cast<int64_t>(b)));
  }
  return visible;
}

}  // namespace

TransformerParts::TransformerParts(const TransformerConfig& config, const std::map<std::string, at::Tensor>& parameters)
    : config_(config),
      embedding_(parameters.at("embedding.weight")),
      decoder_(config, true, lookup(parameters)),
      head_(config.tied_head ? embedding_ : parameters.at("head.weight")) {
  if (config.encoder_decoder) {
    encoder_.emplace(config, false, lookup(parameters));
  }
}

at::Tensor TransformerParts::embed(const at::Tensor& tokens) const {
  return at::embedding(embedding_, tokens.to(embedding_.device()));
}

at::Tensor TransformerParts::encode(const TokenBatch& source, Dropout& dropout) const {
  if (!encoder_) {
    throw std::logic_error("a decoder-only model has no encoder");
  }
  at::Tensor hidden = dropout(embed(source.tokens));
  const SequencePass pass{encoder_->self_bias(hidden, source.lengths), {}, {}, &dropout};
  for (int64_t i = 0; i < encoder_->layers(); ++i) {
    hidden = encoder_->block(i)(hidden, pass);
  }
  return dropout(encoder_->final_norm(hidden));
}

ForwardOutput TransformerParts::forward(const ForwardInput& input, Dropout& dropout) const {
  SequencePass pass;
  pass.dropout = &dropout;
  if (encoder_) {
    pass.memory = encode(input.source, dropout);
  }
  at::Tensor hidden = dropout(embed(input.target.tokens));
  pass.self_bias = decoder_.self_bias(hidden, input.target.lengths);
  if (encoder_) {
    pass.cross_bias = decoder_.cross_bias(hidden, pass.memory, input.source.lengths);
  }
  std::map<int64_t, at::Tensor> layers{{0, hidden}};
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    hidden = decoder_.block(i)(hidden, pass);
    layers[i + 1] = hidden;
  }
  ForwardOutput output;
  for (const int64_t layer : input.hidden_layers) {
    output.layers.push_back(layers.at(layer));
  }
  hidden = dropout(decoder_.final_norm(hidden));
  output.hidden = config_.output_scale == 1.0 ? hidden : hidden * config_.output_scale;
  return output;
}

at::Tensor TransformerParts::finish(const at::Tensor& hidden) const {
  const at::Tensor normed = decoder_.final_norm(hidden);
  return config_.output_scale == 1.0 ? normed : normed * config_.output_scale;
}

std::vector<CrossCache> TransformerParts::cross_caches(const at::Tensor& memory) const {
  std::vector<CrossCache> caches;
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    caches.push_back(decoder_.block(i).cross_cache(memory));
  }
  return caches;
}

void TransformerParts::fit_bias_table(const StepLayout& layout, DecoderState& state) const {
  int64_t needed = 1;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    needed = std::max(needed, layout.base[b] + layout.new_tokens[b] + 1);
  }
  const int64_t present = state.bias_table().defined() ? state.bias_table().size(1) : 0;
  if (needed > present) {
    const int64_t roomy = std::min(std::max(kFirstBiasColumns, 2 * present), state.capacity() + 1);
    state.set_bias_table(decoder_.bias().reversed_table(std::max(needed, roomy)));
  }
}

at::Tensor TransformerParts::run_layers(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                        DecoderState& state,
                                        const std::function<void(int64_t, const at::Tensor&)>& each) const {
  state.check(layers, layout);
  fit_bias_table(layout, state);
  CachedPass pass{layout, state, self_keys(layout, state), {}, state.bias_table(), {}, {}};
  if (encoder_) {
    pass.cross_keys = cross_keys(layout, state);
  }
  at::Tensor x = hidden;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    x = decoder_.block(i).step(x, pass, i);
    if (!layout.siblings) {
      state.advance(i, layout);
    }
    if (each) {
      each(i + 1, x);
    }
  }
  return x;
}

void TransformerParts::write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                DecoderState& state) const {
  state.check(layers, layout);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    state.write(i, decoder_.block(i).key_value(hidden), layout);
    if (!layout.siblings) {
      state.advance(i, layout);
    }
  }
}

void TransformerParts::pack() {
  WeightArena arena;
  if (encoder_) {
    encoder_->pack(arena);
  }
  decoder_.pack(arena);
  head_.pack(arena);
}

void TransformerParts::unpack() {
  if (encoder_) {
    encoder_->unpack();
  }
  decoder_.unpack();
  head_.unpack();
}

}  // namespace draftsmith::model
