// Features drafters: one or two decoder layers that read their target's hidden states, as EAGLE-3 (Li et al. 2025) does
// for decoder-only models, here for encoder-decoders as well. Their start from the target, and their directories.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/files/model_directory.h"
#include "model/transformer/transformer_config.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// A drafter of token x_i+1 reads, at each position i, the embedding e of x_i and a state s of position i - 1:
//   s = W [x^(ℓ1); x^(ℓ2); ...]_i-1 of the target's layers ℓ where the target has processed that token, else the
//       drafter's own output there, before its final norm; zero at the first position
//   queries, keys and values of the first layer read [norm(e); norm(s)], and the residual stream begins with s.
// All else is a decoder of the target's shape, whose cross-attention reads the target's encoder states. e is the
// target's own embedding, not copied; so is the head, unless the vocabulary is pruned. A decoder-only drafter has no
// first position: its state begins with x_1, as in EAGLE-3, and layers for a Qwen are a Llama's, as there. It is a
// TransformerModel with config.features.
//
// In block mode (as in DFlash and P-EAGLE) the tokens of a draft behind its first are not read: e and s are those of a
// learnt mask, so that one run has all positions. So that they agree, logits at the second position and later ones have
// a bias u(x)^T v(y) of rank r: x is the draft's token before, y the token that it predicts.
//
// Its directory is a model directory named DraftsmithFeatures<architecture>. config.json names the target by its path
// (relative to the directory) and model_hash():
//   "draftsmith_features": {"target_layers", "layers", "unrolled", "block", "markov_rank", "target": {...}}

// Returns the kind of features drafters.
const ModelKind& features_kind();

// Refuses a drafter that cannot read this target: sizes, layers, ids and kind must agree (check_pair), and the target
// is an ordinary model of all ids. Errors: UserError with every disagreement and both names.
void require_feature_pair(const TransformerConfig& drafter, const TransformerConfig& target, const PairNames& names);

constexpr int64_t kMostMarkovRank = 4096;

struct FeatureStart {
  int64_t decoder_layers = 1;
  std::vector<int64_t> layers = {};  // that are read; empty: a low one, the middle and the last
  DraftVocabulary vocabulary = {};   // of the drafter's head; empty: the target's own head
  int64_t unrolled = 3;
  bool block = false;
  int64_t markov_rank = 0;  // 0: no bias; else in block mode alone
  bool random = false;      // true: random weights; else those of the target's last layers, as far as they fit
  uint64_t seed = 1;
};

// Returns the configuration of a drafter for the target. Errors: UserError at `where` for layers that the target does
// not have, or that are not rising.
TransformerConfig feature_config(const TransformerConfig& target, const FeatureStart& start, const std::string& where);

// Makes a drafter to be trained, on the target's device and of its type. The target has parameters().
std::unique_ptr<TransformerModel> make_feature_drafter(const TransformerModel& target, const FeatureStart& start = {});

}  // namespace draftsmith::model
