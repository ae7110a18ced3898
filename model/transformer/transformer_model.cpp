#include "model/transformer/transformer_model.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/error.h"
#include "model/files/safetensors.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

// On devices states hold a multiple of so many tokens, so that later ones fit in too.
constexpr int64_t kCapacityStep = 64;

ModelInfo make_info(const TransformerConfig& config, const TransformerParts& parts, const std::string& name) {
  ModelInfo info;
  info.name = name;
  info.vocabulary = config.vocabulary;
  info.decoder_start = config.decoder_start;
  info.pad = config.pad;
  info.eos = config.eos;
  info.layers = config.decoder_layers;
  info.max_positions = config.max_positions;
  info.encoder_decoder = config.encoder_decoder;
  info.device = parts.embedding.device();
  info.dtype = parts.dtype;
  return info;
}

DecoderState& own_state(DecodeState& state) {
  auto* own = dynamic_cast<DecoderState*>(&state);
  if (own == nullptr) {
    throw std::logic_error("this decode state was made by another kind of model");
  }
  return *own;
}

}  // namespace

TransformerModel::TransformerModel(TransformerConfig config, uint64_t seed)
    : TransformerModel(config, initial_parameters(config, seed)) {}

TransformerModel::TransformerModel(TransformerConfig config, std::map<std::string, at::Tensor> parameters)
    : config_(std::move(config)), parameters_(std::move(parameters)) {
  std::map<std::string, std::vector<int64_t>> expected;
  for (const ParameterSpec& spec : expected_parameters(config_)) expected[spec.name] = spec.shape;
  Problems problems;
  check_shapes(expected, shapes_of(parameters_), "parameters of a " + config_.family + " model", {}, problems);
  problems.throw_if_any();
  info_.name = config_.family;
  rebuild();
}

TransformerModel::TransformerModel(TransformerConfig config, ParameterSource& source)
    : config_(std::move(config)), decoding_only_(true) {
  WeightArena arena(source.type());
  parts_ = std::make_unique<TransformerParts>(config_, Building{source, &arena});
  info_ = make_info(config_, *parts_, config_.family);
}

TransformerModel::~TransformerModel() = default;

void TransformerModel::rebuild() {
  states_.clear();
  GivenParameters source(parameters_);
  parts_ = std::make_unique<TransformerParts>(config_, Building{source});
  info_ = make_info(config_, *parts_, info_.name);
}

void TransformerModel::require_parameters() const {
  if (decoding_only_) {
    throw std::logic_error("a model that was loaded for decoding has no plain parameters: load it unpacked");
  }
}

const VocabularyRows& TransformerModel::vocabulary_rows() const {
  return parts_->vocabulary_rows;
}

const std::map<std::string, at::Tensor>& TransformerModel::parameters() const {
  require_parameters();
  return parameters_;
}

void TransformerModel::to(at::Device device, at::ScalarType dtype) {
  require_parameters();
  for (auto& [name, tensor] : parameters_) {
    const bool keep = dtype == at::kHalf && keeps_fp32_in_half(config_, name);
    const bool gradient = tensor.requires_grad();
    tensor = tensor.detach().to(device, keep ? at::kFloat : dtype).requires_grad_(gradient);
  }
  rebuild();
}

void TransformerModel::requires_grad(bool on) {
  require_parameters();
  for (auto& [name, tensor] : parameters_) tensor.requires_grad_(on);
}

void TransformerModel::pack() {
  require_parameters();
  states_.clear();  // recorded work reads the weights as they were
  WeightArena arena;
  if (parts_->encoder) parts_->encoder->pack(arena);
  if (parts_->encoder_projection.weight().defined()) parts_->encoder_projection.pack(arena);
  parts_->decoder.pack(arena);
  parts_->head.pack(arena);
  parts_->keep_first_positions();
}

EncoderStates TransformerModel::encode(const TokenBatch& source) {
  const DecodingGuard guard;
  Dropout none({});
  return {encode_states(source, none), source.lengths};
}

std::unique_ptr<DecodeState> TransformerModel::begin(const EncoderStates& source, int64_t capacity, int64_t samples) {
  const DecodingGuard guard;
  if (!config_.encoder_decoder) {
    throw std::logic_error("a decoder-only model doesn't begin from encoder states");
  }
  const auto sources = static_cast<int64_t>(source.lengths.size());
  auto state = new_state(sources * samples, capacity);
  std::vector<int64_t> source_of_row;
  for (int64_t row = 0; row < sources * samples; ++row) {
    source_of_row.push_back(row / samples);
  }
  state->set_cross(cross_caches(source.hidden), source.lengths, std::move(source_of_row));
  return state;
}

std::unique_ptr<DecodeState> TransformerModel::begin(int64_t rows, int64_t capacity) {
  const DecodingGuard guard;
  if (config_.encoder_decoder) {
    throw std::logic_error("an encoder-decoder model begins from encoder states");
  }
  return new_state(rows, capacity);
}

std::unique_ptr<DecoderState> TransformerModel::new_state(int64_t rows, int64_t capacity) {
  const auto shape = [&](int64_t tokens) {
    return DecoderStateShape{rows,
                             tokens,
                             config_.decoder_layers,
                             {config_.heads, config_.head_width, config_.attention_scale, config_.kv_heads},
                             at::TensorOptions(info_.dtype).device(info_.device),
                             std::max<int64_t>(1, config_.block_attention)};
  };
  if (info_.device.is_cpu()) return std::make_unique<DecoderState>(shape(capacity));
  if (auto earlier = states_.take(rows, capacity)) return earlier;
  auto state = std::make_unique<DecoderState>(shape((capacity + kCapacityStep - 1) / kCapacityStep * kCapacityStep));
  states_.began(*state);
  return state;
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

StepOutput TransformerModel::step(const StepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  const StepPart part{.layers = {0, config_.decoder_layers},
                      .tokens = input.tokens,
                      .logits = input.logits,
                      .hidden_layers = input.hidden_layers};
  const int64_t tokens = input.tokens.size(1);
  static thread_local StepLayout layout;  // keeps its memory
  own.layout_of(input.new_tokens, tokens, 0, layout);
  prepare(part.layers, layout, own);
  const bool records = tokens <= kLongestKernelStep && own.block() == 1 && records_graphs(info_.device);
  StepGraph* graph = records ? own.graphs().find({own.rows(), tokens, input.logits, input.hidden_layers}) : nullptr;
  StepOutput output = graph != nullptr        ? run_recorded(*graph, part, layout, own)
                      : info_.device.is_cpu() ? run(part, layout, own)
                                              : run(part, own.placed(layout), own);
  own.count_runs(part.layers, layout);
  return output;
}

void TransformerModel::give_back(std::unique_ptr<DecodeState> state) {
  if (info_.device.is_cpu() || dynamic_cast<DecoderState*>(state.get()) == nullptr) return;
  states_.put(std::unique_ptr<DecoderState>(static_cast<DecoderState*>(state.release())));
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

at::Tensor TransformerModel::run_layers(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                        DecoderState& state) {
  const std::array<int64_t, 1> last{layers.end};
  return run_part({.layers = layers, .hidden = hidden, .hidden_layers = last}, layout, state).hidden.front();
}

StepOutput TransformerModel::run_part(const StepPart& part, const StepLayout& layout, DecoderState& state) {
  const DecodingGuard guard;
  prepare(part.layers, layout, state);
  StepOutput output = run(part, layout, state);
  state.count_runs(part.layers, layout);
  return output;
}

}  // namespace draftsmith::model
