#include "model/stack.h"

namespace draftsmith::model {
namespace {

NormLayer make_norm(const TransformerConfig& config, const std::string& prefix, const ParameterLookup& find) {
  return {config.norm, config.norm_epsilon, find(prefix + ".weight"), find(prefix + ".bias")};
}

Attention make_attention(const TransformerConfig& config, const std::string& prefix, const ParameterLookup& find,
                         bool self) {
  AttentionWeights weights;
  weights.norm = make_norm(config, prefix + ".norm", find);
  weights.query = Linear(find(prefix + ".query.weight"));
  weights.key = Linear(find(prefix + ".key.weight"));
  weights.value = Linear(find(prefix + ".value.weight"));
  weights.output = Linear(find(prefix + ".output.weight"));
  return {{config.heads, config.head_width, config.attention_scale}, std::move(weights), self};
}

FeedForward make_feed_forward(const TransformerConfig& config, const std::string& prefix, const ParameterLookup& find) {
  return {config.activation, make_norm(config, prefix + ".norm", find), Linear(find(prefix + ".gate.weight")),
          Linear(find(prefix + ".up.weight")), Linear(find(prefix + ".down.weight"))};
}

// fp16 hidden states that overflowed are brought back into range, as Transformers does after each sublayer.
at::Tensor within_half(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) {
    return x;
  }
  constexpr double kHighest = 65504.0;
  const at::Tensor limit = at::where(x.isinf().any(), kHighest - 1000.0, kHighest).to(at::kHalf);
  return at::clamp(x, -limit, limit);
}

at::Tensor expanded(const at::Tensor& additive, int64_t rows, int64_t heads) {
  const int64_t queries = additive.size(2);
  const int64_t keys = additive.size(3);
  return additive.expand({rows, heads, queries, keys}).reshape({rows * heads, queries, keys});
}

}  // namespace

Block::Block(const TransformerConfig& config, const std::string& prefix, const ParameterLookup& find)
    : self_(make_attention(config, prefix + ".self_attention", find, true)),
      feed_forward_(make_feed_forward(config, prefix + ".feed_forward", find)) {
  if (find(prefix + ".cross_attention.query.weight").defined()) {
    cross_ = make_attention(config, prefix + ".cross_attention", find, false);
  }
}

at::Tensor Block::operator()(const at::Tensor& x, const SequencePass& pass) const {
  at::Tensor hidden = within_half(self_(x, at::Tensor(), pass.self_bias, *pass.dropout));
  if (cross_) {
    hidden = within_half((*cross_)(hidden, pass.memory, pass.cross_bias, *pass.dropout));
  }
  return within_half(feed_forward_(hidden, *pass.dropout));
}

at::Tensor Block::step(const at::Tensor& x, CachedPass& pass, int64_t layer) const {
  const Projected projected = self_.project(self_.norm(x));
  pass.state.write(layer, {projected.key, projected.value}, pass.layout);
  const LayerCache& cache = pass.state.cache(layer);
  const at::Tensor context = cached_attention({projected.query, cache.keys, cache.values, pass.bias_table},
                                              pass.self_keys, self_.heads(), pass.dense_self);
  at::Tensor hidden = within_half(self_.add_output(x, context));
  if (cross_) {
    const CrossCache& source = pass.state.cross(layer);
    const at::Tensor query = cross_->project_query(cross_->norm(hidden));
    const at::Tensor from_source = cached_attention({query, source.keys, source.values, at::Tensor()}, pass.cross_keys,
                                                    cross_->heads(), pass.dense_cross);
    hidden = within_half(cross_->add_output(hidden, from_source));
  }
  Dropout none({});
  return within_half(feed_forward_(hidden, none));
}

CrossCache Block::cross_cache(const at::Tensor& memory) const {
  const KeyValue projected = cross_->project_key_value(memory);
  const auto split = [&](const at::Tensor& x) {
    return x.unflatten(-1, {cross_->heads().count, cross_->heads().width}).transpose(1, 2).contiguous();
  };
  return {split(projected.key), split(projected.value)};  // [R,H,S,K]
}

void Block::pack(WeightArena& arena) {
  self_.pack(arena);
  if (cross_) {
    cross_->pack(arena);
  }
  feed_forward_.pack(arena);
}

void Block::unpack() {
  self_.unpack();
  if (cross_) {
    cross_->unpack();
  }
  feed_forward_.unpack();
}

Stack::Stack(const TransformerConfig& config, bool decoder, const ParameterLookup& find)
    : causal_(decoder), heads_(config.heads) {
  const std::string name = decoder ? "decoder" : "encoder";
  const int64_t layers = decoder ? config.decoder_layers : config.encoder_layers;
  for (int64_t i = 0; i < layers; ++i) {
    blocks_.emplace_back(config, name + "." + std::to_string(i), find);
  }
  bias_ = RelativeBias(find(name + ".relative_bias.weight"), !decoder, config.relative_max_distance);
  final_norm_ = make_norm(config, name + ".final_norm", find);
}

ScoreBias Stack::self_bias(const at::Tensor& x, const std::vector<int64_t>& lengths) const {
  const int64_t tokens = x.size(1);
  at::Tensor additive = bias_.full(tokens, tokens);  // [1,H,T,T]
  const at::TensorOptions options = additive.options().requires_grad(false);
  if (causal_) {
    // Right padding: a causal query that matters never sees a padded key.
    const double excluded = excluded_score(additive.scalar_type());
    additive = additive + at::full({tokens, tokens}, excluded, options).triu_(1);
  } else if (std::any_of(lengths.begin(), lengths.end(), [&](int64_t length) { return length < tokens; })) {
    additive = additive + padding_mask(lengths, tokens, options);
  }
  return {expanded(additive, x.size(0), heads_), {}};
}

ScoreBias Stack::cross_bias(const at::Tensor& x, const at::Tensor& memory, const std::vector<int64_t>& lengths) const {
  const int64_t keys = memory.size(1);
  const at::TensorOptions options = memory.options().requires_grad(false);
  if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t length) { return length == keys; })) {
    return {};
  }
  const at::Tensor mask = padding_mask(lengths, keys, options);  // [B,1,1,S]
  const at::Tensor additive = mask.expand({x.size(0), 1, x.size(1), keys});
  return {expanded(additive, x.size(0), heads_), rows_with_keys(lengths, options)};
}

void Stack::pack(WeightArena& arena) {
  for (Block& block : blocks_) {
    block.pack(arena);
  }
}

void Stack::unpack() {
  for (Block& block : blocks_) {
    block.unpack();
  }
}

}  // namespace draftsmith::model
