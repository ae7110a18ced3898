#include "model/transformer/stack.h"

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "base/device_tensors.h"

namespace draftsmith::model {

void self_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys) {
  keys.first = layout.base;
  keys.queries = layout.new_tokens;
  keys.growing = !layout.siblings;
  keys.own_slot = layout.siblings;
  keys.block = state.block();
  keys.cache_row = state.cache_rows();
  for (int64_t& first : keys.first) first += layout.siblings ? 0 : keys.block;
}

void cross_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys) {
  keys.cache_row = state.source_of_row();
  keys.queries = layout.new_tokens;
  keys.growing = false;
  keys.own_slot = false;
  keys.block = 1;
  keys.first.clear();
  for (size_t b = 0; b < keys.cache_row.size(); ++b) {
    keys.first.push_back(state.source_length(static_cast<int64_t>(b)));
  }
}

// ---- Bias of attention scores by positions

namespace {

// Buckets of the distances 0..max_distance with `buckets` buckets in one direction. The logarithm is taken by ATen in
// fp32, as the reference does: bucket borders fall on exact integers, where another rounding gives another bucket.
at::Tensor distance_buckets(int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2;
  const at::Tensor distance = at::arange(0, std::max<int64_t>(max_distance, exact) + 64, at::kLong);
  const double span = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  at::Tensor large = at::log(distance.to(at::kFloat) / exact) / span * (buckets - exact);
  large = (large.clamp_min(0).to(at::kLong) + exact).clamp_max(buckets - 1);
  return at::where(distance < exact, distance, large);
}

// Returns ALiBi's slopes, each head's penalty for a step of distance: 2^(-8 i / H) for powers of two, interpolated
// otherwise. [H]
at::Tensor alibi_slopes(int64_t heads) {
  int64_t power = 1;  // the largest power of two up to H
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power; ++i) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  // The others take every second slope of twice as many heads.
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  return at::tensor(slopes, at::kDouble);
}

}  // namespace

PositionBias::PositionBias(const TransformerConfig& config, const at::Tensor& weight, bool bidirectional,
                           const at::Tensor& like) {
  if (config.positions == Positions::kAlibi) slopes_ = alibi_slopes(config.heads).to(like.device(), like.scalar_type());
  if (config.positions != Positions::kRelativeBias) return;
  weight_ = weight;
  const int64_t buckets = bidirectional ? weight_.size(0) / 2 : weight_.size(0);
  const at::Tensor before = distance_buckets(buckets, config.relative_max_distance);
  const at::Tensor after = bidirectional ? before + buckets : at::zeros_like(before);
  furthest_ = before.size(0) - 1;
  host_buckets_ =
      at::cat({before.narrow(0, 0, 1), after.narrow(0, 1, furthest_), before.narrow(0, 1, furthest_).flip(0)});
  buckets_ = host_buckets_.to(weight_.device());
  positions_ = at::arange(furthest_ + 1, buckets_.options());
}

at::Tensor PositionBias::full(int64_t queries, int64_t keys) const {
  if (slopes_.defined()) {
    const at::Tensor query = at::arange(queries, slopes_.options()).unsqueeze(1);     // [T,1]
    const at::Tensor distance = (query - at::arange(keys, slopes_.options())).abs();  // [T,S]; blocks look ahead
    return (slopes_.view({-1, 1, 1}) * -distance).unsqueeze(0);
  }
  if (!weight_.defined()) return {};
  const int64_t longest = std::max(queries, keys);
  const at::Tensor positions = longest <= furthest_ ? positions_ : at::arange(longest, positions_.options());
  at::Tensor distance = positions.narrow(0, 0, keys) - positions.narrow(0, 0, queries).unsqueeze(1);  // [T,S]
  if (longest > furthest_) distance.clamp_(-furthest_, furthest_);
  return at::embedding(weight_, buckets_.take(distance)).permute({2, 0, 1}).unsqueeze(0);
}

at::Tensor PositionBias::of_distances(int64_t first, int64_t count) const {
  if (slopes_.defined()) {
    return slopes_.unsqueeze(1) * -at::arange(first, first + count, slopes_.options()).abs();  // ahead as behind
  }
  if (!weight_.defined()) return {};
  const at::Tensor distance = at::arange(first, first + count, at::kLong).clamp_(-furthest_, furthest_);
  return weight_.detach().index_select(0, host_buckets_.take(distance).to(weight_.device())).t().contiguous();
}

// ---- Blocks and stacks

namespace {

NormLayer make_norm(const TransformerConfig& config, const std::string& prefix, const Building& building) {
  return {config.norm, config.norm_epsilon, building.find(prefix + ".weight"), building.find(prefix + ".bias")};
}

Linear make_linear(const std::string& prefix, const Building& building) {
  return Linear(building.matrix(prefix + ".weight"), building.find(prefix + ".bias"));
}

// Returns the second norm of a sublayer, which stands behind it; undefined: there is one norm.
NormLayer make_output_norm(const TransformerConfig& config, const std::string& prefix, const Building& building) {
  return config.norm_place == NormPlace::kAround ? make_norm(config, prefix + ".output_norm", building) : NormLayer();
}

// `window`: of a self-attention; 0: none.
Attention make_attention(const TransformerConfig& config, const std::string& prefix, const Building& building,
                         bool self, int64_t window) {
  AttentionWeights weights;
  weights.norm = make_norm(config, prefix + ".norm", building);
  weights.output_norm = make_output_norm(config, prefix, building);
  weights.query = make_linear(prefix + ".query", building);
  weights.key = make_linear(prefix + ".key", building);
  weights.value = make_linear(prefix + ".value", building);
  weights.output = make_linear(prefix + ".output", building);
  weights.residual = {config.norm_place, config.residual_scale};
  if (self && config.query_key_norm != QueryKeyNorm::kNone) {
    const Norm norm = config.norm == Norm::kRmsPlusOne ? config.norm : Norm::kRms;
    const auto norm_of = [&](const char* part) {
      return NormLayer(norm, config.norm_epsilon, building.find(prefix + part), {});
    };
    weights.query_norm = norm_of(".query_norm.weight");
    weights.key_norm = norm_of(".key_norm.weight");
  }
  return {
      {config.heads, config.head_width, config.attention_scale, config.kv_heads, self ? config.score_cap : 0, window},
      std::move(weights),
      self};
}

FeedForward make_feed_forward(const TransformerConfig& config, const std::string& prefix, const Building& building) {
  return {config.activation,
          config.t5_like(),
          {{config.norm_place, config.residual_scale},
           make_norm(config, prefix + ".norm", building),
           make_linear(prefix + ".gate", building),
           make_linear(prefix + ".up", building),
           make_linear(prefix + ".down", building),
           make_output_norm(config, prefix, building)}};
}

// fp16 hidden states that overflowed are brought back into range, as Transformers does after each sublayer of T5 and
// each layer of other encoders of encoder-decoders.
at::Tensor within_half(const at::Tensor& x, bool clamps) {
  if (!clamps || x.scalar_type() != at::kHalf) {
    return x;
  }
  constexpr double kHighest = 65504.0;
  const at::Tensor limit = at::where(x.isinf().any(), kHighest - 1000.0, kHighest).to(at::kHalf);
  return at::clamp(x, -limit, limit);
}

}  // namespace

Block::Block(const TransformerConfig& config, const std::string& prefix, int64_t layer, const Building& building)
    : parallel_residual_(config.parallel_residual),
      rotates_(config.positions == Positions::kRotary && !std::ranges::binary_search(config.unrotated_layers, layer)),
      clamps_half_(config.t5_like()),
      clamps_layer_(clamps_half_ || (config.encoder_decoder && prefix.starts_with("encoder."))),
      self_(make_attention(config, prefix + ".self_attention", building, true,
                           prefix.starts_with("decoder.") && std::ranges::binary_search(config.window_layers, layer)
                               ? config.window
                               : 0)),
      feed_forward_(make_feed_forward(config, prefix + ".feed_forward", building)) {
  if (config.encoder_decoder && prefix.starts_with("decoder.")) {
    cross_ = make_attention(config, prefix + ".cross_attention", building, false, 0);
  }
  if (config.tandem_secondary()) {
    primary_projection_ = Linear(building.matrix(prefix + ".primary_projection.weight"));
  }
}

at::Tensor Block::feed_forward(const at::Tensor& x, const at::Tensor& attended, Dropout& dropout) const {
  return within_half(feed_forward_.add_to(attended, parallel_residual_ ? x : attended, dropout), clamps_layer_);
}

at::Tensor Block::operator()(const at::Tensor& x, const SequencePass& pass, const at::Tensor& primary) const {
  const at::Tensor earlier = primary.defined() ? project_primary(primary) : primary;
  return after_self(x, self_(x, earlier, self_bias_of(pass), *pass.dropout), pass);
}

at::Tensor Block::after_self(const at::Tensor& x, at::Tensor hidden, const SequencePass& pass) const {
  hidden = within_half(hidden, clamps_half_);
  if (cross_) {
    hidden = within_half((*cross_)(hidden, pass.memory, pass.cross_bias, *pass.dropout), clamps_half_);
  }
  return feed_forward(x, hidden, *pass.dropout);
}

at::Tensor Block::step(const at::Tensor& x, CachedPass& pass, int64_t layer, const at::Tensor& input) const {
  Projected projected = input.defined() ? self_.project(input) : self_.project_residual(x);
  const PositionTables& tables = pass.state.positions();
  const RotaryTable& rotary = tables.rotary_of(windowed());
  Dropout none({});
  if (rotates_ && rotary.positions() > 0) {
    const StepPositions positions{pass.positions, pass.layout.places.position};
    const auto rotated = [&](const at::Tensor& heads) {
      return rotate_step(heads, self_.heads().width, rotary, positions);
    };
    if (projected.query_key.defined() && !x.is_cpu()) {
      rotated(projected.query_key);  // in place
    } else {
      projected.query = rotated(projected.query);
      projected.key = rotated(projected.key);
    }
  }
  pass.state.write(layer, {projected.key, projected.value}, pass.layout);
  const LayerCache& cache = pass.state.cache(layer);
  const HeadShape& heads = self_.heads();
  const at::Tensor context = cached_attention(
      {projected.query, cache.keys, cache.values, tables.bias_of(layer), heads.scale, heads.score_cap, heads.window},
      pass.self);
  at::Tensor hidden = within_half(self_.add_output(x, context, none), clamps_half_);
  if (cross_) {
    const CrossCache& source = pass.state.cross(layer);
    const at::Tensor query = cross_->query_of(hidden);
    const at::Tensor from_source =
        cached_attention({query, source.keys, source.values, at::Tensor(), cross_->heads().scale}, pass.cross);
    hidden = within_half(cross_->add_output(hidden, from_source, none), clamps_half_);
  }
  return feed_forward(x, hidden, none);
}

KeyValue Block::key_value(const at::Tensor& x, const PositionTables& tables, const StepPositions& positions) const {
  const RotaryTable& rotary = tables.rotary_of(windowed());
  KeyValue projected = self_.project_key_value(self_.input_of(x));
  if (rotates_ && rotary.positions() > 0) {
    projected.key = rotate_step(projected.key, self_.heads().width, rotary, positions);
  }
  return projected;
}

CrossCache Block::cross_cache(const at::Tensor& memory) const {
  const KeyValue projected = cross_->project_key_value(memory);
  const auto split = [&](const at::Tensor& x) {
    return x.unflatten(-1, {cross_->heads().key_values(), cross_->heads().width}).transpose(1, 2).contiguous();
  };
  return {split(projected.key), split(projected.value)};  // [R,H,S,K]
}

std::optional<LayerWeightsView> Block::packed_view() const {
  auto self = self_.packed_view();
  const auto cross = cross_ ? cross_->packed_view() : std::nullopt;
  const auto feed_forward = feed_forward_.packed_view();
  if (!self || !feed_forward || cross_.has_value() != cross.has_value()) return std::nullopt;
  self->rotates = rotates_;
  const Residual& residual = feed_forward_.residual();
  return LayerWeightsView{.self = *self,
                          .cross = cross,
                          .feed_forward = *feed_forward,
                          .parallel_residual = parallel_residual_,
                          .norm_place = residual.place,
                          .residual_scale = static_cast<float>(residual.scale)};
}

void Block::pack(WeightArena& arena) {
  self_.pack(arena);
  if (cross_) {
    cross_->pack(arena);
  }
  feed_forward_.pack(arena);
  primary_projection_.pack(arena);
}

Stack::Stack(const TransformerConfig& config, bool decoder, const Building& building)
    : causal_(decoder),
      block_(config.block_attention),
      heads_(config.heads),
      window_(decoder && !config.window_layers.empty() ? config.window : 0),
      caps_scores_(config.score_cap > 0) {
  const std::string name = decoder ? "decoder" : "encoder";
  const int64_t layers = decoder ? config.decoder_layers : config.encoder_layers;
  for (int64_t i = 0; i < layers; ++i) {
    blocks_.emplace_back(config, name + "." + std::to_string(i), i, building);
    if (building.arena != nullptr) {
      blocks_.back().pack(*building.arena);
    }
    building.source.built();
  }
  if (config.final_norm) final_norm_ = make_norm(config, name + ".final_norm", building);
  const at::Tensor norm =
      building.find(name + (config.final_norm ? ".final_norm" : ".0.feed_forward.norm") + ".weight");
  options_ = norm.options().requires_grad(false);
  const auto add_bias = [&](const std::string& prefix) {
    biases_.emplace_back(config, building.find(prefix + ".relative_bias.weight"), !decoder, norm);
  };
  if (!config.relative_bias_in_layers) add_bias(name);
  for (int64_t i = 0; config.relative_bias_in_layers && i < layers; ++i) {
    add_bias(name + "." + std::to_string(i) + ".self_attention");
  }
  if (config.positions == Positions::kRotary) {
    rotary_ = config.rotary;
    window_rotary_ = config.window_rotary;
  }
  if (building.arena != nullptr) view_packed();
}

PositionTables Stack::position_tables(int64_t count) const {
  const auto table = [&](const PositionBias& bias) {
    return bias.reversed_table(count, std::max<int64_t>(0, block_ - 1));
  };
  PositionTables tables{count, table(bias_of(0)), {}};
  for (size_t i = 0; has_layer_biases() && i < biases_.size(); ++i) tables.layer_biases.push_back(table(biases_[i]));
  if (rotary_) {
    tables.rotary = rotary_table(*rotary_, count, options_);
  }
  if (window_rotary_) tables.window_rotary = rotary_table(*window_rotary_, count, options_);
  return tables;
}

SegmentIndex segment_index(const TokenBatch& batch) {
  const int64_t rows = batch.tokens.size(0);
  const int64_t tokens = batch.tokens.size(1);
  SegmentIndex index{at::empty({rows, tokens}, at::kLong), at::empty({rows, tokens}, at::kLong)};
  auto* segment = index.segment.mutable_data_ptr<int64_t>();
  auto* position = index.position.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < rows; ++b) {
    std::vector<int64_t> lengths = batch.segments[static_cast<size_t>(b)];
    lengths.push_back(tokens - std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    if (lengths.back() < 0) {
      throw std::logic_error("a row's segments are longer than the row");
    }
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int64_t t = 0; t < lengths[i]; ++t) {
        *segment++ = static_cast<int64_t>(i);
        *position++ = t;
      }
    }
  }
  return index;
}

namespace {

// Number of the block of `size` tokens that each position lies in, counted within its segment. int64 [B or 1,1,T]
at::Tensor block_numbers(const SegmentIndex& packed, int64_t tokens, int64_t size, at::Device device) {
  const at::Tensor position = packed.position.defined()
                                  ? packed.position
                                  : at::arange(tokens, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
  return position.floor_divide(size).unsqueeze(1);
}

// bool [...] as scores: 0, or a number that softmax turns into exactly 0.
at::Tensor excluding(const at::Tensor& hidden, const at::TensorOptions& options) {
  const double excluded = excluded_score(c10::typeMetaToScalarType(options.dtype()));
  return at::zeros(hidden.sizes(), options).masked_fill_(hidden, excluded);
}

}  // namespace

at::Tensor Stack::hidden_tokens(const at::Tensor& x, const TokenBatch& batch, const SegmentIndex& packed,
                                int64_t window) const {
  const int64_t tokens = x.size(1);
  const at::TensorOptions options = x.options().requires_grad(false);
  const auto shorter = [&](int64_t length) { return length < tokens; };
  const bool padded = std::any_of(batch.lengths.begin(), batch.lengths.end(), shorter);
  at::Tensor hidden;
  const auto hide = [&](const at::Tensor& more) { hidden = hidden.defined() ? hidden | more : more; };
  if (block_ > 0) {
    const at::Tensor block = block_numbers(packed, tokens, block_, x.device());
    hide(block.unsqueeze(2).gt(block.unsqueeze(3)));  // keys of later blocks
  } else if (causal_) {
    hide(at::ones({1, 1, tokens, tokens}, options.dtype(at::kBool)).triu_(1));
  }
  if (window > 0) hide(at::ones({1, 1, tokens, tokens}, options.dtype(at::kBool)).tril_(-window));
  if (causal_ && packed.segment.defined()) {
    hide(packed.segment.unsqueeze(2).ne(packed.segment.unsqueeze(1)).unsqueeze(1));
  }
  // Right padding: a causal query that matters never sees a padded key.
  if (padded && (!causal_ || block_ > 0)) {
    hide(padding_mask(batch.lengths, tokens, options).ne(0));
  }
  return hidden;
}

ScoreBias Stack::self_bias(const at::Tensor& x, const TokenBatch& batch, const SelfAttentionForm& form,
                           int64_t layer) const {
  const int64_t tokens = x.size(1);
  at::Tensor additive = bias_of(layer).full(tokens, tokens);  // [1,H,T,T]
  const at::TensorOptions options = (additive.defined() ? additive : x).options().requires_grad(false);
  SegmentIndex packed;
  if (!batch.segments.empty()) {
    packed = segment_index(batch);
    packed = {upload(packed.segment, x.device()), upload(packed.position, x.device())};
  }
  const bool fused = !x.is_cpu() && !form.drops && !caps_scores_;
  const int64_t window = form.windowed && window_ < tokens ? window_ : 0;  // longer ones hide nothing
  // Where order alone hides keys, devices need no mask.
  const bool causal = fused && causal_ && block_ == 0 && form.tandem == 0 && form.unrolled == 0 &&
                      !packed.segment.defined() && !additive.defined() && window == 0;
  const at::Tensor hidden = causal ? at::Tensor() : hidden_tokens(x, batch, packed, window);
  const auto with = [&](const at::Tensor& mask) {
    const at::Tensor scores = excluding(mask, options);
    return additive.defined() ? additive + scores : scores;
  };
  if (form.tandem > 0) {
    const at::Tensor block = block_numbers(packed, tokens, form.tandem, x.device());
    const at::Tensor own = block.unsqueeze(3).eq(block.unsqueeze(2));  // [B or 1,1,T,T]
    additive = at::cat({with(hidden | own), with(hidden | own.logical_not())}, 3);
  } else if (form.unrolled > 0) {
    if (additive.defined()) additive = additive.repeat({1, 1, 1, form.unrolled});
    additive = with(hidden_of_steps(hidden, packed.position, form));
  } else if (hidden.defined()) {
    additive = with(hidden);
  }
  ScoreBias bias = score_bias(additive, {x.size(0), heads_, tokens, form.passes() * tokens}, fused);
  bias.causal = causal;
  if (rotary_) {
    bias.rotary = rotary_table(form.windowed && window_rotary_ ? *window_rotary_ : *rotary_, tokens, options);
    if (packed.position.defined()) {
      bias.rotary = rotary_rows(bias.rotary, packed.position);
    }
  }
  return bias;
}

ScoreBias Stack::cross_bias(const at::Tensor& x, const at::Tensor& memory, const std::vector<int64_t>& lengths,
                            bool drops) const {
  const int64_t keys = memory.size(1);
  const at::TensorOptions options = memory.options().requires_grad(false);
  const auto whole = [&](int64_t length) { return length == keys; };
  const bool padded = !std::all_of(lengths.begin(), lengths.end(), whole);
  ScoreBias bias = score_bias(padded ? padding_mask(lengths, keys, options) : at::Tensor(),
                              {x.size(0), heads_, x.size(1), keys}, !x.is_cpu() && !drops);
  if (padded) bias.has_keys = rows_with_keys(lengths, options);
  return bias;
}

void Stack::pack(WeightArena& arena) {
  for (Block& block : blocks_) {
    block.pack(arena);
  }
  view_packed();
}

void Stack::view_packed() {
  packed_.clear();
  for (const Block& block : blocks_) {
    if (const auto view = block.packed_view()) packed_.push_back(*view);
  }
  if (packed_.size() != blocks_.size()) packed_.clear();
}

}  // namespace draftsmith::model
