// A block (self-attention, cross-attention in the decoder of an encoder-decoder, feed-forward) and a stack of blocks,
// with its bias by positions. Encoder and decoder stacks share this code: causal or not, with cross-attention or
// without.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "base/aten.h"
#include "model/layers/attention.h"
#include "model/layers/cached_attention.h"
#include "model/layers/linear.h"
#include "model/layers/parameter_source.h"
#include "model/layers/step_operators.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Sets `keys` to those of the self-attention, or of the cross-attention, of a step. Both use the memory that `keys`
// has.
void self_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys);
void cross_keys(const StepLayout& layout, const DecoderState& state, VisibleKeys& keys);

// Bias of attention scores by positions: T5's relative bias, ALiBi's (Press et al. 2022), or none.
//
// Of T5 (Raffel et al. 2020, section 2.1) a learned number for each head and bucket of the distance between key and
// query, added to attention scores in all layers of a stack. Beyond half of the buckets, bucket widths grow
// logarithmically.
class PositionBias {
 public:
  PositionBias() = default;
  // `weight`: T5's table [buckets,H], undefined for other kinds of positions. Bidirectional (encoder): half of the
  // buckets are for keys after the query. `like` gives dtype and device.
  PositionBias(const TransformerConfig& config, const at::Tensor& weight, bool bidirectional, const at::Tensor& like);

  // Returns the bias of queries 0..T-1 and keys 0..S-1, with gradient if it is learned. [1,H,T,S]; undefined: none.
  at::Tensor full(int64_t queries, int64_t keys) const;
  // Returns the bias of keys at or before the query, the nearest last, then of the next `later` keys: column n-1-d
  // holds distance d. No gradient. [H,n+later]; undefined: none.
  at::Tensor reversed_table(int64_t n, int64_t later = 0) const { return of_distances(1 - n, n + later); }
  // Returns the bias by key position minus query position: column n-1+d holds d, from 1-n to n-1. No gradient.
  // [H,2n-1]; undefined: none.
  at::Tensor by_distance(int64_t n) const { return of_distances(1 - n, std::max<int64_t>(0, 2 * n - 1)); }

 private:
  // Returns the bias of `count` distances from `first` on. No gradient. [H,count]; undefined: none.
  at::Tensor of_distances(int64_t first, int64_t count) const;

  at::Tensor slopes_;  // ALiBi's [H]; undefined: none
  // T5's: the table, and the furthest distance n; distances beyond have the buckets of n and -n.
  at::Tensor weight_;
  int64_t furthest_ = 0;
  // Buckets of the distances 0..n, -n..-1, int64 [2n+1], so that negative ones count from the end; the same and the
  // positions 0..n on the weight's device.
  at::Tensor host_buckets_, buckets_, positions_;
};

// Parameters for building a model, and an arena if it is packed as it is built.
struct Building {
  ParameterSource& source;
  WeightArena* arena = nullptr;

  at::Tensor find(const std::string& name) const { return source.find(name); }
  // Returns a matrix, unconverted if packing will convert it.
  at::Tensor matrix(const std::string& name) const {
    return arena == nullptr ? source.find(name) : source.unconverted(name);
  }
};

// State shared by the blocks of one pass over whole sequences.
struct SequencePass {
  ScoreBias self_bias = {};
  ScoreBias window_bias = {};  // of layers with windows
  at::Tensor memory = {};      // encoder states [B,S,D]; undefined without cross-attention
  ScoreBias cross_bias = {};
  Dropout* dropout = nullptr;
};

// State shared by the blocks of one cached step.
struct CachedPass {
  const StepLayout& layout;
  DecoderState& state;
  StepVisibility self;
  StepVisibility cross;
  std::vector<int64_t> positions;  // [B*L] of the step's tokens, where queries and keys are rotated on the CPU
};

// The number of the segment that each position of a packed batch belongs to, and its position there; padding is a
// separate segment. int64 [B,T] on the host.
struct SegmentIndex {
  at::Tensor segment;
  at::Tensor position;
};
SegmentIndex segment_index(const TokenBatch& batch);

class Block {
 public:
  // `prefix`: of the names of its parameters, "encoder." or "decoder." and the layer's number.
  Block(const TransformerConfig& config, const std::string& prefix, int64_t layer, const Building& building);

  // Applies the block to whole sequences. [B,T,D] -> [B,T,D]. A Tandem secondary's block also attends to the primary's
  // representations of the same tokens [B,T,D_L], if given and as far as pass.self_bias shows them.
  at::Tensor operator()(const at::Tensor& x, const SequencePass& pass, const at::Tensor& primary = {}) const;
  // Applies the block of a features drafter to whole sequences, whose self-attention sees `seen`, the keys of earlier
  // passes, and adds to them (Attention::after_seen). `input`: what it projects; undefined: input_of(x). `read` int64
  // [N]: the places of [B*T] whose outputs are read, of blocks without cross-attention; others are 0. Undefined: all.
  at::Tensor after_seen(const at::Tensor& x, const at::Tensor& input, KeyValue& seen, const SequencePass& pass,
                        const at::Tensor& read) const;
  // Applies the block to a step's tokens over the state's caches of layer `layer`, and writes their K/V. [B,L,D] ->
  // [B,L,D]. `input` as above.
  at::Tensor step(const at::Tensor& x, CachedPass& pass, int64_t layer, const at::Tensor& input = {}) const;
  // Returns what self-attention projects of x: norm(x), or x.
  at::Tensor input_of(const at::Tensor& x) const { return self_.input_of(x); }
  // Returns the K/V of x [B,L,D] as this layer's input at these positions (rotate_step()).
  KeyValue key_value(const at::Tensor& x, const PositionTables& tables, const StepPositions& positions) const;
  // Returns the primary's representations [B,L,D_L] as inputs of this layer [B,L,D]: FF_Tandem.
  at::Tensor project_primary(const at::Tensor& representation) const { return primary_projection_(representation); }
  // Returns the cross-attention K/V of encoder states [R,S,D].
  CrossCache cross_cache(const at::Tensor& memory) const;

  // Returns what steps on CPUs read; nothing if it is not packed for them.
  std::optional<LayerWeightsView> packed_view() const;

  // Returns whether the layer has a window.
  bool windowed() const { return self_.heads().window > 0; }

  void pack(WeightArena& arena);

 private:
  // Returns the bias of self-attention's scores.
  ScoreBias self_bias_of(const SequencePass& pass) const {
    ScoreBias bias = windowed() ? pass.window_bias : pass.self_bias;
    if (!rotates_) bias.rotary = {};
    return bias;
  }
  // Applies what follows self-attention to its sum: cross-attention and the feed-forward sublayer.
  at::Tensor after_self(const at::Tensor& x, at::Tensor hidden, const SequencePass& pass) const;
  // Applies the feed-forward sublayer, which reads `x` if the residual is parallel and else what attention returned.
  at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& attended, Dropout& dropout) const;

  bool parallel_residual_;
  bool rotates_;       // queries and keys, where the stack does
  bool clamps_half_;   // after each sublayer
  bool clamps_layer_;  // after the last
  Attention self_;
  std::optional<Attention> cross_;
  FeedForward feed_forward_;
  Linear primary_projection_;  // of Tandem secondaries
};

// Forms of self-attention over whole sequences.
struct SelfAttentionForm {
  // A Tandem's block γ: there are 2T keys, the primary's, visible in earlier blocks, then the model's own, visible in
  // the query's block. 0: no Tandem.
  int64_t tandem = 0;
  bool drops = false;     // attention weights are dropped out
  bool windowed = false;  // of the layers with windows
  // Step k of a features drafter's unrolled pass, from 1 on: there are k T keys, those of each step in turn. A token
  // sees the first step's that are k - 1 tokens or more before it, then of each step the one token that a draft had. 0:
  // none.
  int64_t unrolled = 0;
  bool hides_first = false;  // likewise, the keys of first tokens: a decoder-only drafter begins with the second ones

  // Returns how many keys each token has.
  int64_t passes() const { return tandem > 0 ? 2 : std::max<int64_t>(1, unrolled); }
};

// Returns which keys a token does not see in an unrolled pass of k steps, of those that `hidden` [B or 1,1,T,T] shows.
// `position`: int64 [B,T] in the segments; undefined: rows are one. bool [B or 1,1,T,kT]
at::Tensor hidden_of_steps(const at::Tensor& hidden, const at::Tensor& position, const SelfAttentionForm& form);

class Stack {
 public:
  // A decoder is causal, and cross-attends in encoder-decoder models.
  Stack(const TransformerConfig& config, bool decoder, const Building& building);

  int64_t layers() const { return static_cast<int64_t>(blocks_.size()); }
  const Block& block(int64_t i) const { return blocks_.at(static_cast<size_t>(i)); }
  // Returns the layers as steps on CPUs read them; none if they are not packed for them.
  std::span<const LayerWeightsView> packed_views() const { return packed_; }
  // Returns the bias of a layer's scores of T tokens that all see each other, by distance: PositionBias::by_distance.
  at::Tensor sequence_bias(int64_t tokens, int64_t layer) const { return bias_of(layer).by_distance(tokens); }
  // Returns whether layers have biases of their own, so that each needs its own self_bias().
  bool has_layer_biases() const { return biases_.size() > 1; }
  bool rotates() const { return rotary_.has_value(); }
  // Returns whether some layers, or all, have windows.
  bool has_windows() const { return window_ > 0; }
  bool has_only_windows() const { return std::ranges::all_of(blocks_, &Block::windowed); }
  RowNorm final_row_norm() const { return final_norm_.row_norm(); }
  // Returns tables of positions 0..count-1 for cached steps.
  PositionTables position_tables(int64_t count) const;

  // Returns the self-attention bias of a layer over whole sequences of these lengths and segments. x [B,T,D] gives
  // sizes, dtype and device.
  ScoreBias self_bias(const at::Tensor& x, const TokenBatch& batch, const SelfAttentionForm& form = {},
                      int64_t layer = 0) const;
  // Returns the additive cross-attention mask of queries x [B,T,D] over memory [B,S,D]. `drops` as in
  // SelfAttentionForm.
  ScoreBias cross_bias(const at::Tensor& x, const at::Tensor& memory, const std::vector<int64_t>& lengths,
                       bool drops) const;
  // Returns x itself where the stack ends without a norm.
  at::Tensor final_norm(const at::Tensor& x) const { return final_norm_.defined() ? final_norm_(x) : x; }

  void pack(WeightArena& arena);

 private:
  // Sets the views of packed layers.
  void view_packed();
  // Returns which tokens are hidden from each token by order, segments, lengths and a window (0: none). bool
  // [B or 1,1,T,T]; undefined when all are visible.
  at::Tensor hidden_tokens(const at::Tensor& x, const TokenBatch& batch, const SegmentIndex& packed,
                           int64_t window) const;
  const PositionBias& bias_of(int64_t layer) const {
    return biases_.at(has_layer_biases() ? static_cast<size_t>(layer) : 0);
  }

  bool causal_;
  int64_t block_;  // γ of block attention; 0: none
  int64_t heads_;
  int64_t window_ = 0;  // of some layers; 0: none
  bool caps_scores_;
  at::TensorOptions options_;  // of the weights
  std::vector<Block> blocks_;
  std::vector<PositionBias> biases_;  // one for all layers, or one of each
  std::optional<RotaryConfig> rotary_;
  std::optional<RotaryConfig> window_rotary_;
  NormLayer final_norm_;
  std::vector<LayerWeightsView> packed_;
};

}  // namespace draftsmith::model
