// A transformer's encoder and its steps. Its parts are in transformer_parts.cpp, passes by LibTorch's operators in
// transformer_passes.cpp.
#include "model/transformer/transformer_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <ATen/Dispatch.h>
#include <fmt/format.h>

#include "base/device_tensors.h"
#include "base/error.h"
#include "model/files/weight_files.h"
#include "model/transformer/cpu_pass.h"
#include "model/transformer/parameters.h"
#include "model/transformer/stack.h"
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
  info.window = config.window;
  info.encoder_decoder = config.encoder_decoder;
  info.device = parts.device;
  info.dtype = parts.dtype;
  return info;
}

}  // namespace

// ---- Building

TransformerModel::TransformerModel(TransformerConfig config, uint64_t seed)
    : TransformerModel(config, initial_parameters(config, seed)) {}

TransformerModel::TransformerModel(TransformerConfig config, std::map<std::string, at::Tensor> parameters)
    : config_(std::move(config)), parameters_(std::move(parameters)) {
  std::map<std::string, std::vector<int64_t>> expected;
  for (const ParameterSpec& spec : expected_parameters(config_)) expected[spec.name] = spec.shape;
  throw_problems_of(check_shapes, expected, shapes_of(parameters_), "parameters of a " + config_.family + " model", "");
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
    const bool gradient = tensor.requires_grad();
    tensor = tensor.detach().to(device, parameter_dtype(config_, name, dtype)).requires_grad_(gradient);
  }
  rebuild();
}

void TransformerModel::requires_grad(bool on) {
  require_parameters();
  for (auto& [name, tensor] : parameters_) tensor.requires_grad_(on && !is_constant(name));
}

void TransformerModel::pack() {
  require_parameters();
  states_.clear();  // recorded work reads the weights as they were
  WeightArena arena;
  if (parts_->encoder) parts_->encoder->pack(arena);
  parts_->encoder_projection.pack(arena);
  parts_->decoder.pack(arena);
  for (Linear* layer : {&parts_->feature_projection, &parts_->markov_next, &parts_->head}) layer->pack(arena);
  parts_->keep_first_positions();
}

// ---- The encoder

namespace {

// Refuses sources beyond the encoder's positions, which would be read as the last one.
void require_fitting(const TokenBatch& source, const StackInput& input, const std::string& model) {
  if (!input.positions.defined()) return;
  for (const int64_t length : source.lengths) {
    if (length <= input.count()) continue;
    throw UserError({.where = model,
                     .what = "a source is longer than the encoder's positions",
                     .expected = fmt::format("at most {} tokens", input.count()),
                     .found = fmt::format("{} tokens", length),
                     .hint = "shorten or split the source"});
  }
}

}  // namespace

at::Tensor TransformerModel::embed_at(const at::Tensor& tokens, const StackInput& input,
                                      const std::function<at::Tensor()>& positions) const {
  at::Tensor ids = tokens.to(parts_->embedding.device()), masked;
  if (parts_->feature_mask.defined()) {
    masked = ids.lt(0).unsqueeze(-1);
    ids = ids.clamp_min(0);
  }
  at::Tensor hidden = embedded(parts_->embedding, parts_->embedded_rows.of(ids)).to(parts_->dtype);
  if (masked.defined()) hidden = at::where(masked, parts_->feature_mask[0], hidden);
  if (config_.encoder_decoder && !config_.t5_like() && hidden.requires_grad()) {
    // As in Transformers' BART and its relatives, padding, with which a Marian's outputs begin, does not learn here.
    const at::Tensor padding = tokens.to(hidden.device()).eq(config_.pad).unsqueeze(-1);
    hidden = at::where(padding, hidden.detach(), hidden);
  }
  if (parts_->embedding_scale != 1.0) hidden = hidden * parts_->embedding_scale;
  if (input.positions.defined()) {
    at::Tensor rows = positions().clamp_max(input.count() - 1);
    if (input.first_row > 0) rows = rows + input.first_row;
    hidden = hidden + at::embedding(input.positions, rows.to(input.positions.device()));
  }
  return input.norm ? (*input.norm)(hidden) : hidden;
}

at::Tensor TransformerModel::embed_sequences(const TokenBatch& batch, const StackInput& input) const {
  return embed_at(batch.tokens, input, [&] {
    if (!batch.segments.empty()) return upload(segment_index(batch).position, info_.device);
    if (config_.sinusoids_reach_end && input.first_row > 0) {  // M2M-100's sources, where padding has no position
      const at::Tensor counted = batch.tokens.ne(config_.pad).to(at::kLong);
      return counted.cumsum(1) * counted - 1;
    }
    return at::arange(batch.tokens.size(1), at::TensorOptions(at::kLong).device(info_.device));
  });
}

at::Tensor TransformerModel::encode_states(const TokenBatch& source, Dropout& dropout) const {
  if (!parts_->encoder) {
    throw std::logic_error("a decoder-only model, a Tandem secondary or a drafter that shares an encoder has none");
  }
  require_fitting(source, parts_->encoder_input, info_.name);
  at::Tensor hidden = dropout(embed_sequences(source, parts_->encoder_input));
  const Stack& stack = *parts_->encoder;
  const bool by_program = !dropout.active() && !at::GradMode::is_enabled() && hidden.is_cpu() &&
                          hidden.scalar_type() == at::kFloat && !stack.packed_views().empty() &&
                          (!config_.final_norm || stack.final_row_norm().weight != nullptr) && !stack.rotates() &&
                          config_.query_key_norm == QueryKeyNorm::kNone && config_.score_cap == 0;
  if (by_program) {
    hidden = hidden.contiguous();
    std::vector<at::Tensor> biases;  // of the first layer, for all, or of each
    for (int64_t i = 0; i < (stack.has_layer_biases() ? stack.layers() : 1); ++i) {
      biases.push_back(stack.sequence_bias(hidden.size(1), i));
    }
    CpuEncoder::of_thread().encode({stack.packed_views(), stack.final_row_norm(), std::move(biases)}, source.lengths,
                                   hidden);
    return hidden;
  }
  const SelfAttentionForm form{.drops = dropout.active()};
  SequencePass pass{.self_bias = stack.self_bias(hidden, source, form), .dropout = &dropout};
  for (int64_t i = 0; i < stack.layers(); ++i) {
    work_point_both_ways(hidden);
    hidden = stack.block(i)(hidden, pass);
    const bool changes = stack.has_layer_biases() && i + 1 < stack.layers();
    if (changes) pass.self_bias = stack.self_bias(hidden, source, form, i + 1);
  }
  hidden = stack.final_norm(hidden);
  return config_.t5_like() ? dropout(hidden) : hidden;  // T5 alone drops out after the last norm
}

EncoderStates TransformerModel::encode(const TokenBatch& source) {
  const DecodingGuard guard;
  Dropout none({});
  return {encode_states(source, none), source.lengths};
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

// ---- Decoding

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
    const bool grows = info_.device.is_cpu();
    const int64_t roomy = grows ? std::min(std::max(TransformerParts::kFirstPositions, 2 * present), all) : all;
    state.set_positions(parts_->decoder.position_tables(std::max(needed, roomy)));
  }
}

DecoderState& TransformerModel::own_state(DecodeState& state) {
  auto* own = dynamic_cast<DecoderState*>(&state);
  if (own == nullptr) {
    throw std::logic_error("this decode state was made by another kind of model");
  }
  return *own;
}

StepOutput TransformerModel::run(const StepPart& part, const StepLayout& layout, DecoderState& state) const {
  return takes_cpu_steps() ? run_on_cpu(part, layout, state) : run_by_operators(part, layout, state);
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
  own.advance(part.layers, layout);
  return output;
}

void TransformerModel::give_back(std::unique_ptr<DecodeState> state) {
  if (info_.device.is_cpu() || dynamic_cast<DecoderState*>(state.get()) == nullptr) return;
  states_.put(std::unique_ptr<DecoderState>(static_cast<DecoderState*>(state.release())));
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
  state.advance(part.layers, layout);
  return output;
}

// ---- Steps of a packed model on a CPU, from tokens to logits

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

bool TransformerModel::takes_cpu_steps() const {
  const auto stored = [](const at::Tensor& table) { return table.is_cpu() && table.is_contiguous(); };
  const auto fits = [](const RowNorm& norm) { return norm.weight != nullptr; };
  return !parts_->decoder.packed_views().empty() && parts_->head.own_weights() != nullptr &&
         (!config_.final_norm || fits(parts_->decoder.final_row_norm())) && stored(parts_->embedding) &&
         (!config_.reads_features() || fits(parts_->feature_norm.row_norm())) &&
         (!parts_->decoder_input.norm || fits(parts_->decoder_input.norm->row_norm())) &&
         (!parts_->decoder_input.positions.defined() || stored(parts_->decoder_input.positions));
}

void TransformerModel::embed_on_cpu(const at::Tensor& tokens, const StepLayout& layout, float* to) const {
  static thread_local std::vector<int64_t> rows;
  const at::Tensor ids = tokens.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  rows.clear();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const bool masked = id[i] == kMaskToken && parts_->feature_mask.defined();
    if (!masked && (id[i] < 0 || id[i] >= config_.vocabulary)) {
      throw std::logic_error("a token is outside the vocabulary");
    }
    rows.push_back(masked ? 0 : parts_->embedded_rows.row_of(id[i]));
  }
  gather(parts_->embedding, rows, true, to);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] < 0) std::copy_n(parts_->feature_mask.const_data_ptr<float>(), config_.width, to + i * config_.width);
  }
  if (const auto scale = static_cast<float>(parts_->embedding_scale); scale != 1) {
    for (int64_t i = 0; i < ids.numel() * config_.width; ++i) to[i] *= scale;
  }
  const StackInput& input = parts_->decoder_input;
  if (input.positions.defined()) {
    rows.clear();
    for (const int64_t slot : layout.base) {
      const int64_t base = slot + config_.first_position();
      for (int64_t j = 0; j < layout.tokens; ++j) {
        rows.push_back(std::min(base + (layout.siblings ? 0 : j), input.count() - 1) + input.first_row);
      }
    }
    gather(input.positions, rows, false, to);
  }
  if (input.norm) {
    const int64_t width = config_.width;
    normalize_rows(input.norm->row_norm(), to, ids.numel(), width, to);
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
  const bool joins = config_.reads_features() && part.tokens.defined();
  const float* joined = joins ? join_on_cpu(part.tokens, layout, first) : nullptr;
  const bool is_long = state.rows() * layout.tokens >= CpuPass::kLongPass;
  for (int64_t i = part.layers.begin; i < part.layers.end; ++i) {
    step.add_layer(views[static_cast<size_t>(i)], i, wanted(i + 1), i == 0 ? joined : nullptr);
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
  if (output.logits.defined() && config_.logit_cap > 0) {
    output.logits.div_(config_.logit_cap).tanh_().mul_(config_.logit_cap);
  }
  if (output.logits.defined() && parts_->vocabulary_rows.pruned()) {
    output.logits = parts_->vocabulary_rows.spread(output.logits, -std::numeric_limits<double>::infinity());
  }
  return output;
}

}  // namespace draftsmith::model
