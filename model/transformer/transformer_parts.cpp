#include "model/transformer/transformer_parts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

#include "base/device_tensors.h"
#include "model/layers/embedding.h"
#include "model/transformer/cpu_encoder.h"
#include "model/transformer/parameters.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {
namespace {

// Positions that a decode state's tables begin with.
constexpr int64_t kFirstPositions = 65;

StepVisibility self_visibility(const StepLayout& layout, const DecoderState& state) {
  VisibleKeys visible;
  self_keys(layout, state, visible);
  const StepPlaces& places = layout.places;
  return {std::move(visible),
          {places.row, places.prefix, layout.siblings ? places.slot : at::Tensor(), places.position, state.block()},
          layout.recorded};
}

StepVisibility cross_visibility(const StepLayout& layout, const DecoderState& state) {
  VisibleKeys visible;
  cross_keys(layout, state, visible);
  const StepPlaces& places = layout.places;
  return {std::move(visible), {places.source_row, places.source_length, {}, places.source_length}, layout.recorded};
}

// Returns positions: of token j of row b at [b * L + j]. Siblings all have the next position.
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

// Returns each row's last new token, [B,L,D] -> [B,1,D]; its first for a row without new tokens.
at::Tensor last_new(const at::Tensor& hidden, const StepLayout& layout) {
  if (layout.tokens == 1) return hidden;
  if (layout.places.last.defined()) {
    const at::Tensor index = layout.places.last.view({-1, 1, 1}).expand({-1, 1, hidden.size(2)});
    return hidden.gather(1, index);
  }
  std::vector<int64_t> last;
  for (const int64_t count : layout.new_tokens) {
    last.push_back(std::max<int64_t>(0, count - 1));
  }
  if (std::all_of(last.begin(), last.end(), [&](int64_t value) { return value == last.front(); })) {
    return last.empty() ? hidden.narrow(1, 0, 1) : hidden.narrow(1, last.front(), 1);
  }
  const at::Tensor index = at::tensor(last, at::kLong);
  return hidden.index({at::arange(hidden.size(0), at::kLong), index}).unsqueeze(1);
}

void check_primary(const TransformerConfig& config, const PrimaryStates& primary, const at::Tensor& tokens) {
  if (!config.tandem_secondary() || static_cast<int64_t>(primary.layers.size()) != config.decoder_layers) {
    throw std::logic_error("a Tandem secondary reads one representation of its primary for each of its layers");
  }
  for (const at::Tensor& layer : primary.layers) {
    if (layer.dim() != 3 || layer.sizes().slice(0, 2) != tokens.sizes()) {
      throw std::logic_error("a primary's representations are of other tokens than its secondary's");
    }
  }
}

}  // namespace

TransformerParts::TransformerParts(const TransformerConfig& config, const Building& building)
    : config_(config), decoder_(config, true, building) {
  const std::string head = head_parameter(config);
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
  if (config.has_encoder()) {
    encoder_.emplace(config, false, building);
  } else if (config.encoder_decoder) {
    encoder_projection_ = Linear(building.matrix("encoder_projection.weight"));
    if (building.arena != nullptr) encoder_projection_.pack(*building.arena);
  }
  if (config.positions == Positions::kLearned) {
    positions_ = building.find("positions.weight");
  }
  if (config.embedding_norm) {
    embedding_norm_.emplace(config.norm, config.norm_epsilon, building.find("embedding_norm.weight"),
                            building.find("embedding_norm.bias"));
  }
  if (building.arena != nullptr) keep_first_positions();
}

at::Tensor TransformerParts::token_embeddings(const at::Tensor& tokens) const {
  return at::embedding(embedding_, vocabulary_rows_.of(tokens.to(embedding_.device()))).to(at::kFloat);
}

at::Tensor TransformerParts::embed_at(const at::Tensor& tokens, const std::function<at::Tensor()>& positions) const {
  at::Tensor hidden = embedded(embedding_, vocabulary_rows_.of(tokens.to(embedding_.device()))).to(dtype_);
  if (positions_.defined()) {
    hidden = hidden + at::embedding(positions_, positions().clamp_max(positions_.size(0) - 1).to(positions_.device()));
  }
  return embedding_norm_ ? (*embedding_norm_)(hidden) : hidden;
}

at::Tensor TransformerParts::embed(const TokenBatch& batch) const {
  return embed_at(batch.tokens, [&] {
    if (!batch.segments.empty()) return upload(segment_index(batch).position, device());
    return at::arange(batch.tokens.size(1), at::TensorOptions(at::kLong).device(device()));
  });
}

at::Tensor TransformerParts::embed(const at::Tensor& tokens, const StepLayout& layout) const {
  return embed_at(tokens, [&] {
    const at::Tensor& placed = layout.places.position;
    return placed.defined() ? placed : at::tensor(positions_of(layout), at::kLong).view(tokens.sizes());
  });
}

bool TransformerParts::encodes_by_program(const at::Tensor& hidden) const {
  return !at::GradMode::is_enabled() && hidden.is_cpu() && hidden.scalar_type() == at::kFloat &&
         !encoder_->packed_views().empty() && encoder_->final_row_norm().weight != nullptr && !encoder_->rotates();
}

at::Tensor TransformerParts::encode(const TokenBatch& source, Dropout& dropout) const {
  if (!encoder_) {
    throw std::logic_error("a decoder-only model, a Tandem secondary or a drafter that shares an encoder has none");
  }
  at::Tensor hidden = dropout(embed(source));
  if (!dropout.active() && encodes_by_program(hidden)) {
    hidden = hidden.contiguous();
    CpuEncoder::of_thread().encode(
        {encoder_->packed_views(), encoder_->final_row_norm(), encoder_->sequence_bias(hidden.size(1))}, source.lengths,
        hidden);
    return hidden;
  }
  const SequencePass pass{.self_bias = encoder_->self_bias(hidden, source, {.drops = dropout.active()}),
                          .dropout = &dropout};
  for (int64_t i = 0; i < encoder_->layers(); ++i) {
    hidden = apply_block(encoder_->block(i), hidden, pass);
  }
  return dropout(encoder_->final_norm(hidden));
}

at::Tensor TransformerParts::memory(const ForwardInput& input, Dropout& dropout) const {
  if (encoder_) return encode(input.source, dropout);
  if (!config_.encoder_decoder) return {};
  const at::Tensor& states = input.primary == nullptr ? input.shared_encoder : input.primary->encoder;
  if (!states.defined()) {
    throw std::logic_error("an encoder-decoder without an encoder reads another model's encoder states");
  }
  return project_encoder(states);
}

ForwardOutput TransformerParts::forward(const ForwardInput& input, Dropout& dropout) const {
  if (input.primary != nullptr) check_primary(config_, *input.primary, input.target.tokens);
  SequencePass pass;
  pass.dropout = &dropout;
  pass.memory.keys = memory(input, dropout);
  at::Tensor hidden = embed(input.target);
  hidden = dropout(input.added.defined() ? hidden + input.added : hidden);
  const int64_t block = input.primary == nullptr ? 0 : input.block > 0 ? input.block : config_.tandem.block;
  pass.self_bias = decoder_.self_bias(hidden, input.target, {.tandem = block, .drops = dropout.active()});
  if (pass.memory.keys.defined()) {
    pass.cross_bias = decoder_.cross_bias(hidden, pass.memory.keys, input.source.lengths, dropout.active());
  }
  std::map<int64_t, at::Tensor> wanted;  // no others: without gradients the rest is freed as the pass goes on
  for (const int64_t layer : input.hidden_layers) wanted[layer];
  const auto keep = [&](int64_t layer) {
    if (const auto found = wanted.find(layer); found != wanted.end()) found->second = hidden;
  };
  keep(0);
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    const at::Tensor primary = input.primary == nullptr ? at::Tensor() : input.primary->layers[static_cast<size_t>(i)];
    hidden = apply_block(decoder_.block(i), hidden, pass, primary);
    keep(i + 1);
  }
  ForwardOutput output;
  output.encoder = pass.memory.keys;
  for (const int64_t layer : input.hidden_layers) {
    output.layers.push_back(wanted.at(layer));
  }
  hidden = decoder_.final_norm(hidden);
  hidden = config_.encoder_decoder ? dropout(hidden) : hidden;  // T5 alone drops out after the last norm
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
  if (memory.is_cpu() && memory.scalar_type() == at::kFloat && !decoder_.packed_views().empty()) {
    return CpuEncoder::of_thread().cross_caches(decoder_.packed_views(), memory);
  }
  std::vector<CrossCache> caches;
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    caches.push_back(decoder_.block(i).cross_cache(memory));
  }
  return caches;
}

void TransformerParts::keep_first_positions() {
  const at::NoGradGuard no_gradients;
  if (embedding_.is_cpu()) first_positions_ = decoder_.position_tables(kFirstPositions);
}

void TransformerParts::fit_positions(const StepLayout& layout, DecoderState& state) const {
  int64_t needed = 1;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    needed = std::max(needed, layout.base[b] + layout.new_tokens[b] + 1);
  }
  const int64_t present = state.positions().count;
  if (needed > present) {
    if (needed <= first_positions_.count) return state.set_positions(first_positions_);
    const int64_t all = state.capacity() + 1;
    const bool grows = embedding_.is_cpu();
    const int64_t roomy = grows ? std::min(std::max(kFirstPositions, 2 * present), all) : all;
    state.set_positions(decoder_.position_tables(std::max(needed, roomy)));
  }
}

std::vector<int64_t> TransformerParts::rotary_positions(const StepLayout& layout) const {
  const bool read = config_.positions == Positions::kRotary && !layout.places.position.defined();
  return read ? positions_of(layout) : std::vector<int64_t>{};
}

void TransformerParts::prepare(LayerRange layers, const StepLayout& layout, DecoderState& state) const {
  state.check(layers, layout);
  fit_positions(layout, state);
}

StepOutput TransformerParts::run(const StepPart& part, const StepLayout& layout, DecoderState& state) const {
  if (takes_cpu_steps()) return run_on_cpu(part, layout, state);
  StepOutput output;
  output.hidden.resize(part.hidden_layers.size());
  const auto keep = [&](int64_t layer, const at::Tensor& hidden) {
    for (size_t i = 0; i < output.hidden.size(); ++i) {
      if (part.hidden_layers[i] == layer) output.hidden[i] = hidden;
    }
  };
  at::Tensor hidden = part.hidden.defined() ? part.hidden : embed(part.tokens, layout);
  keep(part.layers.begin, hidden);
  CachedPass pass{layout, state, self_visibility(layout, state), {}, rotary_positions(layout)};
  if (config_.encoder_decoder) pass.cross = cross_visibility(layout, state);
  for (int64_t i = part.layers.begin; i < part.layers.end; ++i) {
    hidden = decoder_.block(i).step(hidden, pass, i);
    keep(i + 1, hidden);
  }
  if (part.logits == Logits::kNone) return output;
  output.logits = head(finish(part.logits == Logits::kLast ? last_new(hidden, layout) : hidden));
  return output;
}

void TransformerParts::write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                DecoderState& state) const {
  prepare(layers, layout, state);
  const std::vector<int64_t> positions = rotary_positions(layout);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    state.write(i, decoder_.block(i).key_value(hidden, state.positions().rotary, {positions, layout.places.position}),
                layout);
    if (!layout.siblings) {
      state.advance(i, layout);
    }
  }
}

at::Tensor TransformerParts::project_encoder(const at::Tensor& states) const {
  if (!encoder_projection_.weight().defined()) {
    throw std::logic_error(
        "a model with an encoder, or without any use for one, reads no other model's encoder states");
  }
  return encoder_projection_(states);
}

void TransformerParts::write_primary(const std::vector<at::Tensor>& representations, const StepLayout& layout,
                                     DecoderState& state) const {
  if (!config_.tandem_secondary() || static_cast<int64_t>(representations.size()) != decoder_.layers()) {
    throw std::logic_error("a Tandem secondary takes one representation of the primary for each of its layers");
  }
  for (int64_t i = 0; i < decoder_.layers(); ++i) {
    const at::Tensor projected = decoder_.block(i).project_primary(representations[static_cast<size_t>(i)]);
    write_kv({i, i + 1}, projected, layout, state);
  }
}

void TransformerParts::pack() {
  WeightArena arena;
  if (encoder_) {
    encoder_->pack(arena);
  }
  if (encoder_projection_.weight().defined()) {
    encoder_projection_.pack(arena);
  }
  decoder_.pack(arena);
  head_.pack(arena);
  keep_first_positions();
}

void TransformerParts::unpack() {
  if (encoder_) {
    encoder_->unpack();
  }
  encoder_projection_.unpack();
  decoder_.unpack();
  head_.unpack();
  first_positions_ = {};
}

}  // namespace draftsmith::model
