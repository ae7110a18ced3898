// Multi-head attention (Vaswani et al. 2017): its projections, used by whole sequences and by cached steps alike, and
// attention over whole sequences. Attention over caches is in cached_attention.h.
#pragma once

#include <optional>
#include <vector>

#include "model/cpu/packed_weights.h"
#include "model/layers/dropout.h"
#include "model/layers/linear.h"
#include "model/layers/rotary.h"

namespace draftsmith::model {

struct HeadShape {
  int64_t count = 0;   // H
  int64_t width = 0;   // K
  double scale = 1.0;  // factor on q·k
  // Heads of keys and values, each read by count / kv_count queries (grouped-query attention, Ainslie et al. 2023);
  // 0: count.
  int64_t kv_count = 0;
  double score_cap = 0;  // c of scores c tanh(s / c), before masks; 0: they are not capped
  int64_t window = 0;    // keys that a token sees, its own the last; 0: all before it

  int64_t key_values() const { return kv_count > 0 ? kv_count : count; }
  int64_t inner() const { return count * width; }                // of queries
  int64_t shared_inner() const { return key_values() * width; }  // of keys and of values
};

// Positions and masks of attention scores, shared by all layers of a stack.
struct ScoreBias {
  // Attention is one operator, which keeps no scores: on devices, where no weights are dropped out.
  bool fused = false;
  bool causal = false;  // fused: keys after the query are hidden, and nothing else; `additive` is undefined
  // [B*H,T,S]; fused [B or 1,H or 1,T or 1,S]. Undefined: nothing.
  at::Tensor additive = {};
  // The same in autocast's type, made once for all layers of a device; `additive` is then [B or 1,H or 1,T or 1,S].
  // Undefined: `additive` has the right type.
  at::Tensor rounded = {};
  // [B,1,1], 0 where a row has no key at all, as with an empty source: its attention gives zeros. Undefined: all have.
  at::Tensor has_keys = {};
  RotaryTable rotary = {};  // of positions 0..T-1; undefined: queries and keys are not rotated
};

// Returns a bias of scores of this shape, [B,H,T,S], to which `additive` broadcasts, in the form that attention reads;
// undefined: none. Where autocast is on, its rounded form is made here, once for all layers of a device.
ScoreBias score_bias(const at::Tensor& additive, at::IntArrayRef shape, bool fused);

// Returns an additive mask of the keys beyond each row's length: 0, or a number that softmax turns into exactly 0.
// [B,1,1,S]
at::Tensor padding_mask(const std::vector<int64_t>& lengths, int64_t keys, const at::TensorOptions& options);
// Returns 1 or 0 for each row; undefined if no row is empty. [B,1,1]
at::Tensor rows_with_keys(const std::vector<int64_t>& lengths, const at::TensorOptions& options);
// Returns the additive mask's number for excluded keys: finite, so that a row without keys gives no NaN.
double excluded_score(at::ScalarType type);

struct AttentionWeights {
  Residual residual;
  NormLayer norm;
  Linear query;                // [H*K,D]
  Linear key;                  // [kv*K,D]
  Linear value;                // [kv*K,D]
  Linear output;               // [D,H*K]
  NormLayer output_norm = {};  // NormPlace::kAround: the norm behind
  // RMS norms of queries and keys (QueryKeyNorm), of the self-attention alone: [K], or of all heads [H*K] and [kv*K].
  std::optional<NormLayer> query_norm = {};
  std::optional<NormLayer> key_norm = {};
};

struct KeyValue {
  at::Tensor key;    // [B,L,kv*K], rows perhaps strided
  at::Tensor value;  // [B,L,kv*K]
};

struct Projected {
  at::Tensor query;      // [B,L,H*K], rows perhaps strided
  at::Tensor key;        // [B,L,kv*K]
  at::Tensor value;      // [B,L,kv*K]
  at::Tensor query_key;  // [B,L,(H+kv)*K] the same memory as both, on devices; undefined elsewhere
};

class Attention {
 public:
  // `self`: query, key and value read the same input and may be fused; otherwise key and value read encoder states.
  Attention(HeadShape heads, AttentionWeights weights, bool self)
      : heads_(heads), weights_(std::move(weights)), self_(self) {}

  const HeadShape& heads() const { return heads_; }
  // Returns what is projected of the residual x: norm(x), or x where the norm stands behind the sublayer.
  at::Tensor input_of(const at::Tensor& x) const { return weights_.residual.norms_input() ? weights_.norm(x) : x; }
  // Returns the projections of input [B,L,D]; queries and keys have their norms.
  Projected project(const at::Tensor& input) const;
  // Returns project(input_of(x)), in one launch for few rows on a device.
  Projected project_residual(const at::Tensor& x) const;
  // Returns a cross-attention's query of the residual x, likewise.
  at::Tensor query_of(const at::Tensor& x) const {
    return weights_.residual.norms_input() ? weights_.query.after(weights_.norm, x) : weights_.query(x);
  }
  // Returns keys and values of [B,L,D]: input_of() of a self-attention, encoder states of a cross-attention.
  KeyValue project_key_value(const at::Tensor& input) const;
  // Returns residual + dropout(W_o context), or another form of the sum; context [B,L,H*K] -> [B,L,D].
  at::Tensor add_output(const at::Tensor& residual, const at::Tensor& context, Dropout& dropout) const {
    return sublayer_sum(weights_.residual, output_norm(), residual, weights_.output, context, dropout);
  }

  // Applies the whole sublayer to whole sequences x [B,T,D], with gradients: x + dropout(attention(norm(x), memory)),
  // or another form of Residual. `memory` of a cross-attention: encoder states [B,S,D]; of a self-attention undefined
  // or, in a Tandem, other hidden states of the same tokens [B,T,D]. Queries and keys of a self-attention are rotated
  // by the bias's table. With a memory its keys are the memory's, as input_of() it, followed by x's own, S = 2T.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& memory, const ScoreBias& bias, Dropout& dropout) const;
  // Returns the context [B,T,H*K] of a self-attention that projects `input` and whose keys and values follow those that
  // `seen` holds of earlier passes, S = k T in the k-th. Adds its own to them.
  at::Tensor after_seen(const at::Tensor& input, KeyValue& seen, const ScoreBias& bias, Dropout& dropout) const;

  // Returns what steps on CPUs read; nothing if it is not packed for them.
  std::optional<AttentionWeightsView> packed_view() const;

  void pack(WeightArena& arena);

 private:
  const NormLayer& output_norm() const { return weights_.output_norm.defined() ? weights_.output_norm : weights_.norm; }
  at::Tensor split(const at::Tensor& x) const;
  // Returns the parts of the fused projections of a self-attention, without norms.
  Projected parted(const at::Tensor& all) const;
  // Applies the norms of queries and keys, if there are any.
  Projected normed(Projected projected) const;
  // Returns a self-attention's projections of whole sequences, rotated by the bias's table.
  Projected project_sequence(const at::Tensor& input, const ScoreBias& bias) const;
  at::Tensor heads_of(const at::Tensor& x) const;
  at::Tensor attend(const Projected& projected, const ScoreBias& bias, Dropout& dropout) const;
  at::Tensor fused_context(const Projected& projected, const ScoreBias& bias) const;
  at::Tensor context_by_products(const Projected& projected, const ScoreBias& bias, Dropout& dropout) const;

  // Returns whether the fused projection may replace the single ones: not if a gradient is recorded.
  bool use_fused(const at::Tensor& x) const {
    const bool records = at::GradMode::is_enabled() && (x.requires_grad() || weights_.key.weight().requires_grad());
    return fused_.weight().defined() && !records;
  }

  HeadShape heads_;
  AttentionWeights weights_;
  bool self_;
  // After pack(): [(H+2*kv)*K,D] for self, [2*kv*K,D] (key, value) for cross attention. A copy of the weights, so that
  // one product reads them all.
  Linear fused_;
};

}  // namespace draftsmith::model
