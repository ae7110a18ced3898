#include "model/transformer_parts.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace draftsmith::model {
namespace {

// Positions that a decode state's tables begin with.
constexpr int64_t kFirstPositions = 65;

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

// Of token j of row b at [b * L + j]. Siblings all stand at the next position.
std::vector<int64_t> positions_of(const StepLayout& layout) {
  std::vector<int64_t> positions;
  positions.reserve(layout.base.size() * static_cast<size_t>(layout.tokens));
  for (const int64_t base : layout.base) {
    for (int64_t j = 0; j < layout.tokens; ++j) {
      positions.push_back(base + (layout.siblings ? 0 : j));
    }
  }
  return positions;
}

}  // namespace

TransformerParts::TransformerParts(const TransformerConfig& config, const Building& building)
    : config_(config), decoder_(config, true, building) {
  const std::string head = config.tied_head ? "embedding.weight" : "head.weight";
  if (building.arena != nullptr) {
    head_ = Linear(building.matrix(head));
    head_.pack(*building.arena);
    // A head that keeps its plain weight shares it with the embedding.
    const bool shared = config.tied_head && !head_.weight().is_meta();
    embedding_ = shared ? head_.weight() : building.source.unconverted("embedding.weight");
  } else {
    embedding_ = building.find("embedding.weight");
    head_ = Linear(config.tied_head ? embedding_ : building.find(head));
  }
  vocabulary_rows_ = VocabularyRows(config, embedding_.device());
  dtype_ = building.find("decoder.final_norm.weight").scalar_type();
  building.source.built();
  if (config.encoder_decoder) {
    encoder_.emplace(config, false, building);
  }
  if (config.positions == Positions::kLearned) {
    positions_ = building.find("positions.weight");
  }
  if (config.embedding_norm) {
    embedding_norm_.emplace(config.norm, config.norm_epsilon, building.find("embedding_norm.weight"),
                            building.find("embedding_norm.bias"));
  }
}

at::Tensor TransformerParts::embed_at(const at::Tensor& tokens, const std::function<at::Tensor()>& positions) const {
  at::Tensor hidden = at::embedding(embedding_, vocabulary_rows_.of(tokens.to(embedding_.device()))).to(dtype_);
  if (positions_.defined()) {
    hidden = hidden + at::embedding(positions_, positions().clamp_max(positions_.size(0) - 1).to(positions_.device()));
  }
  return embedding_norm_ ? (*embedding_norm_)(hidden) : hidden;
}

at::Tensor TransformerParts::embed(const TokenBatch& batch) const {
  return embed_at(batch.tokens, [&] {
    return batch.segments.empty() ? at::arange(batch.tokens.size(1), at::kLong) : segment_index(batch).position;
  });
}

at::Tensor TransformerParts::embed(const at::Tensor& tokens, const StepLayout& layout) const {
  return embed_at(tokens, [&] { return at::tensor(positions_of(layout), at::kLong).view(tokens.sizes()); });
}

at::Tensor TransformerParts::encode(const TokenBatch& source, Dropout& dropout, ActivationObserver* observer) const {
  if (!encoder_) {
    throw std::logic_error("a decoder-only model has no encoder");
  }
  at::Tensor hidden = dropout(embed(source));
  const SequencePass pass{encoder_->self_bias(hidden, source), {}, {}, &dropout, observer};
  for (int64_t i = 0; i < encoder_->layers(); ++i) {
    hidden = encoder_->block(i)(hidden, pass);
  }
  return dropout(encoder_->final_norm(hidden));
}

ForwardOutput TransformerParts::forward(const ForwardInput& input, Dropout& dropout) const {
  SequencePass pass;
  pass.dropout = &dropout;
  pass.observer = input.observer;
  if (encoder_) {
    pass.memory = encode(input.source, dropout, input.observer);
  }
  at::Tensor hidden = dropout(embed(input.target));
  pass.self_bias = decoder_.self_bias(hidden, input.target);
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
  hidden = decoder_.final_norm(hidden);
  hidden = encoder_ ? dropout(hidden) : hidden;  // T5 alone drops out after the last norm
  output.hidden = config_.output_scale == 1.0 ? hidden : hidden * config_.output_scale;
  return output;
}

at::Tensor TransformerParts::finish(const at::Tensor& hidden) const {
  const at::Tensor normed = decoder_.final_norm(hidden);
  return config_.output_scale == 1.0 ? normed : normed * config_.output_scale;
}

at::Tensor TransformerParts::head(const at::Tensor& hidden) const {
  return vocabulary_rows_.spread(head_(hidden), -std::numeric_limits<double>::infinity());
}

std::vector<CrossCache> TransformerParts::cross_caches(const at::Tensor& memory) const {
  std::vector<CrossCache> caches;
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    caches.push_back(decoder_.block(i).cross_cache(memory));
  }
  return caches;
}

void TransformerParts::fit_positions(const StepLayout& layout, DecoderState& state) const {
  int64_t needed = 1;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    needed = std::max(needed, layout.base[b] + layout.new_tokens[b] + 1);
  }
  const int64_t present = state.positions().count;
  if (needed > present) {
    const int64_t roomy = std::min(std::max(kFirstPositions, 2 * present), state.capacity() + 1);
    state.set_positions(decoder_.position_tables(std::max(needed, roomy)));
  }
}

std::vector<int64_t> TransformerParts::rotary_positions(const StepLayout& layout) const {
  return config_.positions == Positions::kRotary ? positions_of(layout) : std::vector<int64_t>{};
}

at::Tensor TransformerParts::run_layers(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                        DecoderState& state,
                                        const std::function<void(int64_t, const at::Tensor&)>& each) const {
  state.check(layers, layout);
  fit_positions(layout, state);
  CachedPass pass{layout, state, self_keys(layout, state), {}, rotary_positions(layout), {}, {}};
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
  fit_positions(layout, state);
  const std::vector<int64_t> positions = rotary_positions(layout);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    state.write(i, decoder_.block(i).key_value(hidden, state.positions().rotary, positions), layout);
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
