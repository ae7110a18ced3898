// TransformerModel's passes by LibTorch's operators: whole sequences with gradients, and steps on any device. Steps of
// a packed model on a CPU are in transformer_model.cpp.
#include <limits>
#include <map>
#include <stdexcept>

#include "base/signals.h"
#include "model/layers/post_op.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/stack.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

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
  const at::Tensor last =
      layout.places.last.defined() ? layout.places.last : at::tensor(layout.new_tokens, at::kLong).sub(1).clamp_min(0);
  return hidden.gather(1, last.view({-1, 1, 1}).expand({-1, 1, hidden.size(2)}));
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

void work_point_both_ways(const at::Tensor& hidden) {
  work_point();
  if (hidden.is_cpu() && hidden.requires_grad()) hidden.register_hook([](const at::Tensor&) { work_point(); });
}

at::Tensor TransformerModel::token_embeddings(const at::Tensor& tokens) const {
  const DecodingGuard guard;
  return at::embedding(parts_->embedding, parts_->embedded_rows.of(tokens.to(parts_->embedding.device())))
      .to(at::kFloat);
}

at::Tensor TransformerModel::embed(const at::Tensor& tokens, const StepLayout& layout) const {
  const DecodingGuard guard;
  if (tokens.size(1) != layout.tokens) {
    throw std::logic_error("a step's tokens disagree with its layout");
  }
  return embed_at(tokens, parts_->decoder_input, [&] {
    const at::Tensor& placed = layout.places.position;
    const at::Tensor slots =
        placed.defined() ? placed : at::tensor(positions_of(layout), at::kLong).view(tokens.sizes());
    return config_.first_position() > 0 ? slots + config_.first_position() : slots;
  });
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
  at::Tensor hidden = embed_sequences(input.target, parts_->decoder_input);
  hidden = dropout(input.added.defined() ? hidden + input.added : hidden);
  const int64_t block = input.primary == nullptr ? 0 : input.block > 0 ? input.block : config_.tandem.block;
  const SelfAttentionForm form{.tandem = block, .drops = dropout.active()};
  const SelfAttentionForm windowed{.tandem = block, .drops = dropout.active(), .windowed = true};
  if (!parts_->decoder.has_only_windows()) {
    pass.self_bias = parts_->decoder.self_bias(hidden, input.target, form);
  }
  if (parts_->decoder.has_windows()) {
    pass.window_bias = parts_->decoder.self_bias(hidden, input.target, windowed);
  }
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
    work_point_both_ways(hidden);
    const at::Tensor primary = input.primary == nullptr ? at::Tensor() : input.primary->layers[static_cast<size_t>(i)];
    if (i > 0 && parts_->decoder.has_layer_biases()) {
      pass.self_bias = parts_->decoder.self_bias(hidden, input.target, form, i);
    }
    hidden = parts_->decoder.block(i)(hidden, pass, primary);
    keep(i + 1);
  }
  ForwardOutput output;
  output.encoder = pass.memory;
  for (const int64_t layer : input.hidden_layers) {
    output.layers.push_back(wanted.at(layer));
  }
  hidden = parts_->decoder.final_norm(hidden);
  hidden = config_.t5_like() ? dropout(hidden) : hidden;  // T5 alone drops out after the last norm
  output.hidden = config_.output_scale == 1.0 ? hidden : hidden * config_.output_scale;
  return output;
}

at::Tensor TransformerModel::finish(const at::Tensor& hidden) const {
  const at::Tensor normed = parts_->decoder.final_norm(hidden);
  return config_.output_scale == 1.0 ? normed : normed * config_.output_scale;
}

at::Tensor TransformerModel::head(const at::Tensor& hidden) const {
  return logits_of(head_rows(hidden));
}

at::Tensor TransformerModel::head_rows(const at::Tensor& hidden) const {
  return parts_->head(hidden);
}

at::Tensor TransformerModel::logits_of(const at::Tensor& rows) const {
  return parts_->vocabulary_rows.spread(soft_capped(rows, config_.logit_cap), -std::numeric_limits<double>::infinity());
}

const at::Tensor& TransformerModel::head_bias() const {
  return parts_->head.bias();
}

std::vector<int64_t> TransformerModel::rotary_positions(const StepLayout& layout) const {
  const bool read = config_.positions == Positions::kRotary && !layout.places.position.defined();
  return read ? positions_of(layout) : std::vector<int64_t>{};
}

StepOutput TransformerModel::run_by_operators(const StepPart& part, const StepLayout& layout,
                                              DecoderState& state) const {
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
    if (hidden.is_cpu()) work_point();  // launches on a device take no time, and may be recorded
    const bool joins = i == 0 && config_.reads_features();
    hidden =
        parts_->decoder.block(i).step(hidden, pass, i, joins ? join(embed(part.tokens, layout), hidden) : at::Tensor());
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
    state.write(i, parts_->decoder.block(i).key_value(hidden, state.positions(), {positions, layout.places.position}),
                layout);
  }
  state.advance(layers, layout);
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

StepOutput TransformerModel::run_recorded(StepGraph& graph, const StepPart& part, const StepLayout& layout,
                                          DecoderState& state) const {
  const at::Tensor places = state.packed_places(layout);
  if (graph.work) {
    graph.tokens.copy_(part.tokens, /*non_blocking=*/true);
    graph.places.copy_(places, /*non_blocking=*/true);
  } else {
    graph.tokens = part.tokens.to(info_.device, /*non_blocking=*/true, /*copy=*/true);
    graph.places = places.to(info_.device, /*non_blocking=*/true);
    StepPart recorded = part;
    recorded.tokens = graph.tokens;
    StepLayout placed = state.placed(layout, graph.places);
    placed.recorded = true;
    graph.work =
        record_graph(info_.device, state.graphs().memory(), [&] { graph.output = run(recorded, placed, state); });
    if (!graph.work) return run(recorded, state.placed(layout, graph.places), state);
  }
  graph.work->replay();
  return graph.output;
}

std::optional<DevicePlaces> TransformerModel::device_places(DecodeState& state) {
  if (info_.device.is_cpu() || !has_step_places(info_.device)) return std::nullopt;
  if (config_.block_attention > 1) return std::nullopt;
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  const std::vector<int64_t> none(static_cast<size_t>(own.rows()), 0);
  prepare({0, config_.decoder_layers}, own.layout_of(none, 1), own);
  return own.device_places();
}

StepOutput TransformerModel::step_on_device(const DeviceStepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  return run({.layers = {0, config_.decoder_layers}, .tokens = input.tokens, .logits = input.logits},
             own.device_layout(input), own);
}

}  // namespace draftsmith::model
