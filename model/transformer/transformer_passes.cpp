// The parts of a transformer, and TransformerModel's passes over them: whole sequences, and steps on any device. Those
// of a packed model on a CPU are in cpu_decoder.cpp.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "base/device_tensors.h"
#include "base/signals.h"
#include "model/layers/embedding.h"
#include "model/transformer/cpu_encoder.h"
#include "model/transformer/parameters.h"
#include "model/transformer/stack.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

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
    : decoder(config, true, building) {
  const std::string weight = head_parameter(config);
  if (building.arena != nullptr) {
    head = Linear(building.matrix(weight));
    head.pack(*building.arena);
    // A head that keeps its plain weight shares it with the embedding.
    const bool shared = config.tied_head && !head.weight().is_meta();
    embedding = shared ? head.weight() : building.source.unconverted("embedding.weight");
  } else {
    embedding = building.find("embedding.weight");
    head = Linear(config.tied_head ? embedding : building.find(weight));
  }
  vocabulary_rows = VocabularyRows(config, embedding.device());
  dtype = building.find("decoder.final_norm.weight").scalar_type();
  building.source.built();
  if (config.has_encoder()) {
    encoder.emplace(config, false, building);
  } else if (config.encoder_decoder) {
    encoder_projection = Linear(building.matrix("encoder_projection.weight"));
    if (building.arena != nullptr) encoder_projection.pack(*building.arena);
  }
  if (config.positions == Positions::kLearned) {
    positions = building.find("positions.weight");
  }
  if (config.embedding_norm) {
    embedding_norm.emplace(config.norm, config.norm_epsilon, building.find("embedding_norm.weight"),
                           building.find("embedding_norm.bias"));
  }
  if (building.arena != nullptr) keep_first_positions();
}

void TransformerParts::keep_first_positions() {
  const at::NoGradGuard no_gradients;
  if (embedding.is_cpu()) first_positions = decoder.position_tables(kFirstPositions);
}

at::Tensor TransformerModel::token_embeddings(const at::Tensor& tokens) const {
  const DecodingGuard guard;
  return at::embedding(parts_->embedding, parts_->vocabulary_rows.of(tokens.to(parts_->embedding.device())))
      .to(at::kFloat);
}

at::Tensor TransformerModel::embed_at(const at::Tensor& tokens, const std::function<at::Tensor()>& positions) const {
  at::Tensor hidden =
      embedded(parts_->embedding, parts_->vocabulary_rows.of(tokens.to(parts_->embedding.device()))).to(parts_->dtype);
  if (parts_->positions.defined()) {
    hidden =
        hidden + at::embedding(parts_->positions,
                               positions().clamp_max(parts_->positions.size(0) - 1).to(parts_->positions.device()));
  }
  return parts_->embedding_norm ? (*parts_->embedding_norm)(hidden) : hidden;
}

at::Tensor TransformerModel::embed_sequences(const TokenBatch& batch) const {
  return embed_at(batch.tokens, [&] {
    if (!batch.segments.empty()) return upload(segment_index(batch).position, info_.device);
    return at::arange(batch.tokens.size(1), at::TensorOptions(at::kLong).device(info_.device));
  });
}

at::Tensor TransformerModel::embed(const at::Tensor& tokens, const StepLayout& layout) const {
  const DecodingGuard guard;
  if (tokens.size(1) != layout.tokens) {
    throw std::logic_error("a step's tokens disagree with its layout");
  }
  return embed_at(tokens, [&] {
    const at::Tensor& placed = layout.places.position;
    return placed.defined() ? placed : at::tensor(positions_of(layout), at::kLong).view(tokens.sizes());
  });
}

at::Tensor TransformerModel::encode_states(const TokenBatch& source, Dropout& dropout) const {
  if (!parts_->encoder) {
    throw std::logic_error("a decoder-only model, a Tandem secondary or a drafter that shares an encoder has none");
  }
  at::Tensor hidden = dropout(embed_sequences(source));
  const Stack& stack = *parts_->encoder;
  const bool by_program = !dropout.active() && !at::GradMode::is_enabled() && hidden.is_cpu() &&
                          hidden.scalar_type() == at::kFloat && !stack.packed_views().empty() &&
                          stack.final_row_norm().weight != nullptr && !stack.rotates();
  if (by_program) {
    hidden = hidden.contiguous();
    CpuEncoder::of_thread().encode({stack.packed_views(), stack.final_row_norm(), stack.sequence_bias(hidden.size(1))},
                                   source.lengths, hidden);
    return hidden;
  }
  const SequencePass pass{.self_bias = stack.self_bias(hidden, source, {.drops = dropout.active()}),
                          .dropout = &dropout};
  for (int64_t i = 0; i < stack.layers(); ++i) {
    work_point();
    hidden = stack.block(i)(hidden, pass);
  }
  return dropout(stack.final_norm(hidden));
}

at::Tensor TransformerModel::memory(const ForwardInput& input, Dropout& dropout) const {
  if (parts_->encoder) return encode_states(input.source, dropout);
  if (!config_.encoder_decoder) return {};
  const at::Tensor& states = input.primary == nullptr ? input.shared_encoder : input.primary->encoder;
  if (!states.defined()) {
    throw std::logic_error("an encoder-decoder without an encoder reads another model's encoder states");
  }
  return project(states);
}

ForwardOutput TransformerModel::forward(const ForwardInput& input, const DropoutContext& context) {
  Dropout dropout(context);
  if (input.primary != nullptr) check_primary(config_, *input.primary, input.target.tokens);
  SequencePass pass;
  pass.dropout = &dropout;
  pass.memory = memory(input, dropout);
  at::Tensor hidden = embed_sequences(input.target);
  hidden = dropout(input.added.defined() ? hidden + input.added : hidden);
  const int64_t block = input.primary == nullptr ? 0 : input.block > 0 ? input.block : config_.tandem.block;
  pass.self_bias = parts_->decoder.self_bias(hidden, input.target, {.tandem = block, .drops = dropout.active()});
  if (pass.memory.defined()) {
    pass.cross_bias = parts_->decoder.cross_bias(hidden, pass.memory, input.source.lengths, dropout.active());
  }
  std::map<int64_t, at::Tensor> wanted;  // no others: without gradients the rest is freed as the pass goes on
  for (const int64_t layer : input.hidden_layers) wanted[layer];
  const auto keep = [&](int64_t layer) {
    if (const auto found = wanted.find(layer); found != wanted.end()) found->second = hidden;
  };
  keep(0);
  for (int64_t i = 0; i < parts_->decoder.layers(); ++i) {
    work_point();
    const at::Tensor primary = input.primary == nullptr ? at::Tensor() : input.primary->layers[static_cast<size_t>(i)];
    hidden = parts_->decoder.block(i)(hidden, pass, primary);
    keep(i + 1);
  }
  ForwardOutput output;
  output.encoder = pass.memory;
  for (const int64_t layer : input.hidden_layers) {
    output.layers.push_back(wanted.at(layer));
  }
  hidden = parts_->decoder.final_norm(hidden);
  hidden = config_.encoder_decoder ? dropout(hidden) : hidden;  // T5 alone drops out after the last norm
  output.hidden = config_.output_scale == 1.0 ? hidden : hidden * config_.output_scale;
  return output;
}

at::Tensor TransformerModel::finish(const at::Tensor& hidden) const {
  const at::Tensor normed = parts_->decoder.final_norm(hidden);
  return config_.output_scale == 1.0 ? normed : normed * config_.output_scale;
}

at::Tensor TransformerModel::head(const at::Tensor& hidden) const {
  return parts_->vocabulary_rows.spread(parts_->head(hidden), -std::numeric_limits<double>::infinity());
}

std::vector<CrossCache> TransformerModel::cross_caches(const at::Tensor& memory) const {
  if (memory.is_cpu() && memory.scalar_type() == at::kFloat && !parts_->decoder.packed_views().empty()) {
    return CpuEncoder::of_thread().cross_caches(parts_->decoder.packed_views(), memory);
  }
  std::vector<CrossCache> caches;
  for (int64_t i = 0; i < parts_->decoder.layers(); ++i) {
    caches.push_back(parts_->decoder.block(i).cross_cache(memory));
  }
  return caches;
}

void TransformerModel::prepare(LayerRange layers, const StepLayout& layout, DecoderState& state) const {
  state.check(layers, layout);
  int64_t needed = 1;
  for (size_t b = 0; b < layout.base.size(); ++b) {
    needed = std::max(needed, layout.base[b] + layout.new_tokens[b] + 1);
  }
  const int64_t present = state.positions().count;
  if (needed > present) {
    if (needed <= parts_->first_positions.count) return state.set_positions(parts_->first_positions);
    const int64_t all = state.capacity() + 1;
    const bool grows = parts_->embedding.is_cpu();
    const int64_t roomy = grows ? std::min(std::max(kFirstPositions, 2 * present), all) : all;
    state.set_positions(parts_->decoder.position_tables(std::max(needed, roomy)));
  }
}

std::vector<int64_t> TransformerModel::rotary_positions(const StepLayout& layout) const {
  const bool read = config_.positions == Positions::kRotary && !layout.places.position.defined();
  return read ? positions_of(layout) : std::vector<int64_t>{};
}

StepOutput TransformerModel::run(const StepPart& part, const StepLayout& layout, DecoderState& state) const {
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
    hidden = parts_->decoder.block(i).step(hidden, pass, i);
    keep(i + 1, hidden);
  }
  if (part.logits == Logits::kNone) return output;
  output.logits = head(finish(part.logits == Logits::kLast ? last_new(hidden, layout) : hidden));
  return output;
}

void TransformerModel::write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                DecoderState& state) {
  const DecodingGuard guard;
  prepare(layers, layout, state);
  const std::vector<int64_t> positions = rotary_positions(layout);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    state.write(
        i, parts_->decoder.block(i).key_value(hidden, state.positions().rotary, {positions, layout.places.position}),
        layout);
    if (!layout.siblings) {
      state.advance(i, layout);
    }
  }
}

at::Tensor TransformerModel::project(const at::Tensor& states) const {
  if (!parts_->encoder_projection.weight().defined()) {
    throw std::logic_error(
        "a model with an encoder, or without any use for one, reads no other model's encoder states");
  }
  return parts_->encoder_projection(states);
}

EncoderStates TransformerModel::project_encoder(const EncoderStates& other) {
  const DecodingGuard guard;
  return {project(other.hidden.to(parts_->dtype)), other.lengths};
}

void TransformerModel::write_primary(const std::vector<at::Tensor>& representations, const StepLayout& layout,
                                     DecoderState& state) {
  const DecodingGuard guard;
  if (!config_.tandem_secondary() || static_cast<int64_t>(representations.size()) != parts_->decoder.layers()) {
    throw std::logic_error("a Tandem secondary takes one representation of the primary for each of its layers");
  }
  for (int64_t i = 0; i < parts_->decoder.layers(); ++i) {
    const at::Tensor projected =
        parts_->decoder.block(i).project_primary(representations[static_cast<size_t>(i)].to(parts_->dtype));
    write_kv({i, i + 1}, projected, layout, state);
  }
}

}  // namespace draftsmith::model
