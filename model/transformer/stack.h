// A block (self-attention, cross-attention where there is one, feed-forward) and a stack of them. The encoder's and the
// decoder's stack are the same code: causal or not, with cross-attention or without.
#pragma once

#include <functional>
#include <optional>

#include "model/layers/activation_observer.h"
#include "model/layers/attention.h"
#include "model/layers/cached_attention.h"
#include "model/layers/feed_forward.h"
#include "model/layers/parameter_source.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/position_bias.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// What a model is built from: parameters and, when it is packed as it is built, the arena for that.
struct Building {
  ParameterSource& source;
  WeightArena* arena = nullptr;

  at::Tensor find(const std::string& name) const { return source.find(name); }
  // A matrix: packing converts it.
  at::Tensor matrix(const std::string& name) const {
    return arena == nullptr ? source.find(name) : source.unconverted(name);
  }
};

// What the blocks of one pass over whole sequences share.
struct SequencePass {
  ScoreBias self_bias;
  at::Tensor memory;  // encoder states [B,S,D]; undefined without cross-attention
  ScoreBias cross_bias;
  Dropout* dropout = nullptr;
  ActivationObserver observer = {};
};

// What the blocks of one cached step share.
struct CachedPass {
  const StepLayout& layout;
  DecoderState& state;
  VisibleKeys self_keys;
  VisibleKeys cross_keys;
  std::vector<int64_t> positions;  // [B*L] of the step's tokens, where queries and keys are rotated
  DenseVisibility dense_self;
  DenseVisibility dense_cross;
};

// Number of the segment that each position of a packed batch belongs to, and its position there; padding is a segment
// of its own. int64 [B,T] on the host.
struct SegmentIndex {
  at::Tensor segment;
  at::Tensor position;
};
SegmentIndex segment_index(const TokenBatch& batch);

class Block {
 public:
  Block(const TransformerConfig& config, const std::string& prefix, const Building& building);

  // Whole sequences. [B,T,D] -> [B,T,D]. A Tandem secondary's block also attends to the primary's representations of
  // the same tokens [B,T,D_L], where they are given and as far as pass.self_bias shows them.
  at::Tensor operator()(const at::Tensor& x, const SequencePass& pass, const at::Tensor& primary = {}) const;
  // A step's tokens over the state's caches of layer `layer`, whose K/V are written. [B,L,D] -> [B,L,D]
  at::Tensor step(const at::Tensor& x, CachedPass& pass, int64_t layer) const;
  // K/V that x [B,L,D] has as this layer's input at the layout's positions.
  KeyValue key_value(const at::Tensor& x, const RotaryTable& rotary, const std::vector<int64_t>& positions) const;
  // The primary's representations [B,L,D_L] as inputs of this layer [B,L,D]: FF_Tandem.
  at::Tensor project_primary(const at::Tensor& representation) const { return primary_projection_(representation); }
  // Cross-attention K/V of encoder states [R,S,D].
  CrossCache cross_cache(const at::Tensor& memory) const;

  void pack(WeightArena& arena);
  void unpack();

 private:
  // Applies the feed-forward sublayer, which reads `x` if the residual is parallel and else what attention returned.
  at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& attended, Dropout& dropout,
                          const InputObserver& observer) const;
  // Returns the pass's observer for one sublayer; empty if the pass has none.
  InputObserver observer(const SequencePass& pass, const char* sublayer) const;

  std::string prefix_;  // of its parameters
  bool parallel_residual_;
  bool clamps_half_;
  Attention self_;
  std::optional<Attention> cross_;
  FeedForward feed_forward_;
  Linear primary_projection_;  // of Tandem secondaries
};

class Stack {
 public:
  // Decoders are causal, and cross-attend in encoder-decoder models.
  Stack(const TransformerConfig& config, bool decoder, const Building& building);

  int64_t layers() const { return static_cast<int64_t>(blocks_.size()); }
  const Block& block(int64_t i) const { return blocks_.at(static_cast<size_t>(i)); }
  // Tables of positions 0..count-1 for cached steps.
  PositionTables position_tables(int64_t count) const;

  // Additive self-attention bias of whole sequences of these lengths and segments. x [B,T,D] gives sizes, dtype and
  // device. With a `tandem` block γ > 0 for 2T keys: the primary's, seen where they lie in earlier blocks, then the own
  // ones, seen in the query's block.
  ScoreBias self_bias(const at::Tensor& x, const TokenBatch& batch, int64_t tandem = 0) const;
  // Additive cross-attention mask for queries x [B,T,D] over memory [B,S,D].
  ScoreBias cross_bias(const at::Tensor& x, const at::Tensor& memory, const std::vector<int64_t>& lengths) const;
  at::Tensor final_norm(const at::Tensor& x) const { return final_norm_(x); }

  void pack(WeightArena& arena);
  void unpack();

 private:
  // Which of the tokens each token may not see as far as order, segments and lengths go. bool [B or 1,1,T,T]; undefined
  // when all may be seen.
  at::Tensor hidden_tokens(const at::Tensor& x, const TokenBatch& batch, const SegmentIndex& packed) const;

  bool causal_;
  int64_t block_;  // γ of block attention; 0: none
  int64_t heads_;
  at::TensorOptions options_;  // of the weights
  std::vector<Block> blocks_;
  PositionBias bias_;
  std::optional<RotaryConfig> rotary_;
  NormLayer final_norm_;
};

}  // namespace draftsmith::model
