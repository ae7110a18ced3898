#include "model/transformer/transformer_model.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

std::string text(at::IntArrayRef shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    out.append(i == 0 ? "" : ",").append(std::to_string(shape[i]));
  }
  return out + "]";
}

void check_parameters(const TransformerConfig& config, const std::map<std::string, at::Tensor>& parameters) {
  Problems problems;
  std::map<std::string, bool> known;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    known[spec.name] = true;
    const auto found = parameters.find(spec.name);
    if (found == parameters.end()) {
      problems.add({spec.name, "a parameter is missing", "a tensor " + text(spec.shape), "none", ""});
    } else if (found->second.sizes() != at::IntArrayRef(spec.shape)) {
      problems.add({spec.name, "a parameter's shape disagrees with the configuration", text(spec.shape),
                    text(found->second.sizes()), ""});
    }
  }
  for (const auto& [name, tensor] : parameters) {
    if (!known.contains(name)) {
      problems.add({name, "a parameter is not part of this architecture", "", text(tensor.sizes()), ""});
    }
  }
  problems.throw_if_any();
}

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
  info.device = parts.device();
  info.dtype = parts.dtype();
  return info;
}

DecoderState& own_state(DecodeState& state) {
  auto* own = dynamic_cast<DecoderState*>(&state);
  if (own == nullptr) {
    throw std::logic_error("this decode state was made by another kind of model");
  }
  return *own;
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

}  // namespace

struct TransformerModel::Impl {
  TransformerConfig config;
  std::map<std::string, at::Tensor> parameters;
  bool decoding_only = false;
  ModelInfo info;
  std::optional<TransformerParts> parts;
  ResidentStates states;

  Impl(TransformerConfig given, std::map<std::string, at::Tensor> tensors)
      : config(std::move(given)), parameters(std::move(tensors)) {
    info.name = config.family;
    check_parameters(config, parameters);
    rebuild();
  }

  Impl(TransformerConfig given, ParameterSource& source) : config(std::move(given)), decoding_only(true) {
    info.name = config.family;
    WeightArena arena(source.type());
    parts.emplace(config, Building{source, &arena});
    info = make_info(config, *parts, info.name);
  }

  // The parts hold handles of the parameters: they are made anew when those are replaced.
  void rebuild() {
    states.clear();
    GivenParameters source(parameters);
    parts.emplace(config, Building{source});
    info = make_info(config, *parts, info.name);
  }

  void require_parameters() const {
    if (decoding_only) {
      throw std::logic_error("a model that was loaded for decoding has no plain parameters: load it unpacked");
    }
  }

  DecoderStateShape state_shape(int64_t rows, int64_t capacity) const {
    return {rows,
            capacity,
            config.decoder_layers,
            {config.heads, config.head_width, config.attention_scale, config.kv_heads},
            at::TensorOptions(info.dtype).device(info.device),
            std::max<int64_t>(1, config.block_attention)};
  }

  // Runs a step's work on the device.
  StepOutput run(const StepInput& input, const at::Tensor& tokens, const StepLayout& layout,
                 DecoderState& state) const {
    std::map<int64_t, at::Tensor> wanted;
    for (const int64_t layer : input.hidden_layers) wanted[layer] = at::Tensor();
    const auto keep = [&](int64_t layer, const at::Tensor& hidden) {
      if (const auto found = wanted.find(layer); found != wanted.end()) found->second = hidden;
    };
    const at::Tensor embedded = parts->embed(tokens, layout);
    keep(0, embedded);
    const at::Tensor hidden = parts->apply_layers({0, config.decoder_layers}, embedded, layout, state, keep);
    StepOutput output;
    for (const int64_t layer : input.hidden_layers) output.hidden.push_back(wanted.at(layer));
    if (input.logits == Logits::kNone) return output;
    output.logits = parts->head(parts->finish(input.logits == Logits::kLast ? last_new(hidden, layout) : hidden));
    return output;
  }

  // Replays a step's work, which the first call records.
  StepOutput run_recorded(StepGraph& graph, const StepInput& input, const StepLayout& layout,
                          DecoderState& state) const {
    const at::Tensor places = state.packed_places(layout);
    if (graph.work) {
      graph.tokens.copy_(input.tokens, /*non_blocking=*/true);
      graph.places.copy_(places, /*non_blocking=*/true);
    } else {
      graph.tokens = input.tokens.to(info.device, /*non_blocking=*/true, /*copy=*/true);
      graph.places = places.to(info.device, /*non_blocking=*/true);
      StepLayout recorded = state.placed(layout, graph.places);
      recorded.recorded = true;
      graph.work = record_graph(info.device, state.graphs().memory(),
                                [&] { graph.output = run(input, graph.tokens, recorded, state); });
      if (!graph.work) return run(input, graph.tokens, state.placed(layout, graph.places), state);
    }
    graph.work->replay();
    return graph.output;
  }

  // Returns an empty state, in the memory of an earlier one if one fits.
  std::unique_ptr<DecoderState> new_state(int64_t rows, int64_t capacity) {
    if (info.device.is_cpu()) return std::make_unique<DecoderState>(state_shape(rows, capacity));
    if (auto earlier = states.take(rows, capacity)) return earlier;
    const int64_t held = (capacity + kCapacityStep - 1) / kCapacityStep * kCapacityStep;
    auto state = std::make_unique<DecoderState>(state_shape(rows, held));
    states.began(*state);
    return state;
  }
};

TransformerModel::TransformerModel(TransformerConfig config, uint64_t seed) {
  auto parameters = initial_parameters(config, seed);
  impl_ = std::make_unique<Impl>(std::move(config), std::move(parameters));
}

TransformerModel::TransformerModel(TransformerConfig config, std::map<std::string, at::Tensor> parameters)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(parameters))) {}

TransformerModel::TransformerModel(TransformerConfig config, ParameterSource& source)
    : impl_(std::make_unique<Impl>(std::move(config), source)) {}

TransformerModel::~TransformerModel() = default;

const TransformerConfig& TransformerModel::config() const {
  return impl_->config;
}

const ModelInfo& TransformerModel::info() const {
  return impl_->info;
}

void TransformerModel::set_name(std::string name) {
  impl_->info.name = std::move(name);
}

bool TransformerModel::decoding_only() const {
  return impl_->decoding_only;
}

const VocabularyRows& TransformerModel::vocabulary_rows() const {
  return impl_->parts->vocabulary_rows();
}

const std::map<std::string, at::Tensor>& TransformerModel::parameters() const {
  impl_->require_parameters();
  return impl_->parameters;
}

void TransformerModel::to(at::Device device, at::ScalarType dtype) {
  impl_->require_parameters();
  for (auto& [name, tensor] : impl_->parameters) {
    const bool keep = dtype == at::kHalf && keeps_fp32_in_half(impl_->config, name);
    const bool gradient = tensor.requires_grad();
    tensor = tensor.detach().to(device, keep ? at::kFloat : dtype).requires_grad_(gradient);
  }
  impl_->rebuild();
}

void TransformerModel::requires_grad(bool on) {
  impl_->require_parameters();
  for (auto& [name, tensor] : impl_->parameters) {
    tensor.requires_grad_(on);
  }
}

void TransformerModel::pack() {
  impl_->require_parameters();
  impl_->states.clear();  // recorded work reads the weights as they were
  impl_->parts->pack();
}

void TransformerModel::unpack() {
  impl_->require_parameters();
  impl_->states.clear();
  impl_->parts->unpack();
}

ForwardOutput TransformerModel::forward(const ForwardInput& input, const DropoutContext& dropout) {
  Dropout sites(dropout);
  return impl_->parts->forward(input, sites);
}

at::Tensor TransformerModel::head(const at::Tensor& hidden) const {
  return impl_->parts->head(hidden);
}

at::Tensor TransformerModel::finish(const at::Tensor& layer_hidden) const {
  return impl_->parts->finish(layer_hidden);
}

at::Tensor TransformerModel::exit_head(const at::Tensor& layer_hidden) const {
  return impl_->parts->head(impl_->parts->finish(layer_hidden));
}

at::Tensor TransformerModel::token_embeddings(const at::Tensor& tokens) const {
  const DecodingGuard guard;
  return impl_->parts->token_embeddings(tokens);
}

EncoderStates TransformerModel::encode(const TokenBatch& source) {
  const DecodingGuard guard;
  Dropout none({});
  return {impl_->parts->encode(source, none), source.lengths};
}

std::unique_ptr<DecodeState> TransformerModel::begin(const EncoderStates& source, int64_t capacity, int64_t samples) {
  const DecodingGuard guard;
  if (!impl_->config.encoder_decoder) {
    throw std::logic_error("a decoder-only model doesn't begin from encoder states");
  }
  const auto sources = static_cast<int64_t>(source.lengths.size());
  auto state = impl_->new_state(sources * samples, capacity);
  std::vector<int64_t> source_of_row;
  for (int64_t row = 0; row < sources * samples; ++row) {
    source_of_row.push_back(row / samples);
  }
  state->set_cross(impl_->parts->cross_caches(source.hidden), source.lengths, std::move(source_of_row));
  return state;
}

std::unique_ptr<DecodeState> TransformerModel::begin(int64_t rows, int64_t capacity) {
  const DecodingGuard guard;
  if (impl_->config.encoder_decoder) {
    throw std::logic_error("an encoder-decoder model begins from encoder states");
  }
  return impl_->new_state(rows, capacity);
}

StepOutput TransformerModel::step(const StepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  const LayerRange layers{0, impl_->config.decoder_layers};
  const int64_t tokens = input.tokens.size(1);
  if (const CpuDecoder cpu = impl_->parts->on_cpu(); cpu.takes_steps()) {
    static thread_local StepLayout layout;
    own.layout_of(input.new_tokens, tokens, 0, layout);
    impl_->parts->prepare(layers, layout, own);
    StepOutput output = cpu.run(
        {.layers = layers, .tokens = input.tokens, .logits = input.logits, .hidden_layers = input.hidden_layers},
        layout, own);
    own.count_runs(layers, layout);
    return output;
  }
  const bool records = tokens <= kLongestKernelStep && own.block() == 1 && records_graphs(impl_->info.device);
  const StepLayout layout = own.layout_of(input.new_tokens, tokens);
  impl_->parts->prepare(layers, layout, own);
  StepGraph* graph = records ? own.graphs().find({own.rows(), tokens, input.logits, input.hidden_layers}) : nullptr;
  StepOutput output = graph == nullptr ? impl_->run(input, input.tokens, own.placed(layout), own)
                                       : impl_->run_recorded(*graph, input, layout, own);
  own.count_runs(layers, layout);
  return output;
}

void TransformerModel::give_back(std::unique_ptr<DecodeState> state) {
  if (impl_->info.device.is_cpu() || dynamic_cast<DecoderState*>(state.get()) == nullptr) return;
  impl_->states.put(std::unique_ptr<DecoderState>(static_cast<DecoderState*>(state.release())));
}

void TransformerModel::free_states() {
  impl_->states.clear();
}

std::optional<DevicePlaces> TransformerModel::device_places(DecodeState& state) {
  if (impl_->info.device.is_cpu() || !has_step_places(impl_->info.device)) return std::nullopt;
  if (impl_->config.block_attention > 1) return std::nullopt;
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  const std::vector<int64_t> none(static_cast<size_t>(own.rows()), 0);
  impl_->parts->prepare({0, impl_->config.decoder_layers}, own.layout_of(none, 1), own);
  return own.device_places();
}

StepOutput TransformerModel::step_on_device(const DeviceStepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  DecoderState& own = own_state(state);
  return impl_->run({.tokens = input.tokens, .new_tokens = {}, .logits = input.logits, .hidden_layers = {}},
                    input.tokens, own.device_layout(input), own);
}

at::Tensor TransformerModel::embed(const at::Tensor& tokens, const StepLayout& layout) {
  const DecodingGuard guard;
  if (tokens.size(1) != layout.tokens) {
    throw std::logic_error("a step's tokens disagree with its layout");
  }
  return impl_->parts->embed(tokens, layout);
}

at::Tensor TransformerModel::run_layers(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                        DecoderState& state) {
  const DecodingGuard guard;
  return impl_->parts->run_layers(layers, hidden, layout, own_state(state));
}

StepOutput TransformerModel::run_part(const StepPart& part, const StepLayout& layout, DecoderState& state) {
  const DecodingGuard guard;
  if (const CpuDecoder cpu = impl_->parts->on_cpu(); cpu.takes_steps()) {
    impl_->parts->prepare(part.layers, layout, state);
    StepOutput output = cpu.run(part, layout, state);
    state.count_runs(part.layers, layout);
    return output;
  }
  StepOutput output;
  output.hidden.resize(part.hidden_layers.size());
  at::Tensor hidden = part.hidden.defined() ? part.hidden : embed(part.tokens, layout);
  std::vector<int64_t> stops(part.hidden_layers.begin(), part.hidden_layers.end());
  stops.push_back(part.layers.end);
  std::sort(stops.begin(), stops.end());
  int64_t layer = part.layers.begin;
  for (const int64_t stop : stops) {
    if (stop > layer) hidden = impl_->parts->run_layers({layer, stop}, hidden, layout, state);
    layer = stop;
    for (size_t i = 0; i < output.hidden.size(); ++i) {
      if (part.hidden_layers[i] == layer) output.hidden[i] = hidden;
    }
  }
  if (part.logits == Logits::kNone) return output;
  output.logits = exit_head(part.logits == Logits::kLast ? last_new(hidden, layout) : hidden);
  return output;
}

void TransformerModel::write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout,
                                DecoderState& state) {
  const DecodingGuard guard;
  impl_->parts->write_kv(layers, hidden, layout, own_state(state));
}

EncoderStates TransformerModel::project_encoder(const EncoderStates& other) {
  const DecodingGuard guard;
  return {impl_->parts->project_encoder(other.hidden.to(impl_->parts->dtype())), other.lengths};
}

void TransformerModel::write_primary(const std::vector<at::Tensor>& representations, const StepLayout& layout,
                                     DecoderState& state) {
  const DecodingGuard guard;
  std::vector<at::Tensor> own_type;
  for (const at::Tensor& layer : representations) own_type.push_back(layer.to(impl_->parts->dtype()));
  impl_->parts->write_primary(own_type, layout, own_state(state));
}

}  // namespace draftsmith::model
