// The configuration of a transformer of any family: what blocks, stacks and heads are built from. Each family
// (model/families/) reads it from its config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// Positions of tokens: T5's bucketed bias on attention scores, rotated queries and keys (Llama, GPT-NeoX), learned
// embeddings of positions (GPT-2, BART), ALiBi's linear bias (BLOOM), fixed sinusoids added to the embeddings (Marian).
enum class Positions { kRelativeBias, kRotary, kLearned, kAlibi, kSinusoid };

// RMS norms of self-attention's queries and keys before they are rotated: of each head by one weight [K] (Qwen3), or of
// all heads of a token together (OLMo-2).
enum class QueryKeyNorm { kNone, kHead, kWidth };

// The ids that a drafter with a pruned vocabulary has embeddings and logits for (model/transformer/draft_vocabulary.h).
struct DraftVocabulary {
  std::vector<int64_t> ids;  // rising, one id for each row; empty: every id has a row
  int64_t stand_in = 0;      // one of `ids`: embedded in place of ids without a row
};

// The Tandem part of a secondary (Nair et al. 2024, section 3; model/models/tandem.h): its layer j + 1 reads primary
// representation layer_map[j], projected, for the tokens of earlier blocks.
struct TandemShape {
  int64_t primary_width = 0;            // D_L; 0: no Tandem secondary
  int64_t primary_layers = 0;           // L_L, of the primary's decoder
  std::vector<int64_t> layer_map = {};  // ℓ: [decoder_layers], numbers 0 (embedding output) .. primary_layers
  int64_t block = 2;                    // γ it was trained with, at least 1
};

// The part of a features drafter (model/models/feature_drafter.h): which states of its target it reads.
struct FeatureShape {
  int64_t target_layers = 0;         // of the target's decoder; 0: no features drafter
  std::vector<int64_t> layers = {};  // whose hidden states are read, rising: 0 (embedding output) .. target_layers
  int64_t unrolled = 3;              // steps that training unrolled: the length of drafts that it learnt
  bool block = false;                // one run drafts them all, from masked tokens behind the first
  int64_t markov_rank = 0;           // r of that run's bias by the token before; 0: none
};

struct TransformerConfig {
  std::string family;  // "t5", "llama", ...: selects names and config keys
  bool encoder_decoder = true;

  int64_t vocabulary = 0;  // V
  DraftVocabulary draft_vocabulary;
  int64_t width = 0;       // D  (d_model)
  int64_t heads = 0;       // H
  int64_t kv_heads = 0;    // heads of keys and values, each shared by H / kv_heads queries (grouped); 0: H
  int64_t head_width = 0;  // K  (d_kv); heads * head_width need not equal width
  int64_t ff_width = 0;    // F  (d_ff)
  int64_t encoder_layers = 0;
  int64_t decoder_layers = 0;  // N

  Norm norm = Norm::kRms;
  double norm_epsilon = 1e-6;
  Activation activation = Activation::kRelu;
  bool gated = false;              // feed-forward act(x W_gate) * (x W_up), T5 v1.1 and mT5
  bool projection_bias = false;    // query, key and value projections have biases
  bool output_bias = false;        // so has attention's output projection
  bool feed_forward_bias = false;  // and the feed-forward layers
  bool parallel_residual = false;  // x + attention(norm1 x) + feed_forward(norm2 x) (GPT-NeoX)
  NormPlace norm_place = NormPlace::kBefore;
  bool final_norm = true;  // each stack ends with a norm; Marian and BART have none
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  bool embedding_norm = false;  // the embedded tokens, with positions, are normed in each stack (BLOOM, BART)
  Positions positions = Positions::kRelativeBias;
  // Learned positions: rows of the tables [offset+P,D] before position 0 (BART, OPT: 2). Sinusoids: the number that
  // position 0 has (M2M-100: 2).
  int64_t position_offset = 0;
  // Sinusoids of M2M-100: wavelengths reach 2 pi 10^4 at the last of D/2 pairs. Otherwise at the one behind it.
  bool sinusoids_reach_end = false;
  RotaryConfig rotary;                         // Positions::kRotary
  std::vector<int64_t> unrotated_layers = {};  // decoder layers without rotation, rising (SmolLM3)
  // Keys that a token of some decoder layers sees, its own the last (Mistral, Gemma). 0: no layer has a window.
  int64_t window = 0;
  std::vector<int64_t> window_layers = {};    // those layers, rising
  std::optional<RotaryConfig> window_rotary;  // their rotation; absent: that of the others (Gemma 3)
  bool relative_bias_in_layers = false;       // each layer has its own table of relative bias (UMT5)
  int64_t relative_buckets = 32;
  int64_t relative_max_distance = 128;

  double attention_scale = 1.0;         // factor on q·k; T5: 1
  double embedding_scale = 1.0;         // factor on embedded tokens, before positions are added (Marian, Granite)
  bool rounds_embedding_scale = false;  // to the type of hidden states (Gemma)
  double residual_scale = 1.0;          // factor on what each sublayer adds (Granite)
  double output_scale = 1.0;            // factor on the decoder output before the head
  double score_cap = 0;                 // c of c tanh(x / c) on self-attention's scores; 0: none (Gemma 2)
  double logit_cap = 0;                 // likewise on logits
  bool tied_head = true;                // the head is the shared embedding
  bool head_bias = false;  // logits have a bias [V], a constant that training leaves as it is (Marian, BART)

  double dropout = 0.1;             // dropout_rate
  double initializer_factor = 1.0;  // T5's factor on all initial standard deviations
  double initializer_range = 0.02;  // the others' standard deviation of all initial matrices
  // Initial weights that add to the residual stream are smaller by (2N)^-0.5, as in GPT-2.
  bool smaller_residual_start = false;
  // Standard deviation of the initial embeddings and head; absent: the family's own (T5: 1.0 and 1.0/head D^-0.5).
  std::optional<double> embedding_std;

  int64_t pad = 0;
  std::vector<int64_t> eos = {1};
  int64_t decoder_start = 0;
  int64_t max_positions = 0;   // 0: unlimited (relative positions, ALiBi)
  std::optional<int64_t> bos;  // decoder-only: what an empty prompt begins with

  // A Tandem secondary of an encoder-decoder has no encoder (encoder_layers 0): it reads the primary's encoder states.
  TandemShape tandem;
  // Width D_L of the encoder states of another model, which an encoder-decoder without an encoder of its own
  // cross-attends to through a projection (model/models/shared_encoder.h). 0: no such model.
  int64_t shared_encoder_width = 0;
  // A features drafter has neither embedding nor encoder: it reads its target's. Its first layer's queries, keys and
  // values read 2 D numbers.
  FeatureShape features;
  // γ of block prediction (model/models/block_models.h): tokens see all earlier blocks of γ and all of their own,
  // and the hidden state at token t predicts token t + γ. 0: causal, and token t + 1. Decoder-only.
  int64_t block_attention = 0;

  // Returns the number of rows of the embedding and of the head.
  int64_t vocabulary_rows() const {
    return draft_vocabulary.ids.empty() ? vocabulary : static_cast<int64_t>(draft_vocabulary.ids.size());
  }
  int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  bool tandem_secondary() const { return tandem.primary_width > 0; }
  bool shares_encoder() const { return shared_encoder_width > 0; }
  bool reads_features() const { return features.target_layers > 0; }
  // Returns whether there is a head.weight. A features drafter has one of a pruned vocabulary, else its target's head.
  bool own_head() const { return reads_features() ? !draft_vocabulary.ids.empty() : !tied_head; }
  // Returns the position of the first token that a state holds: a decoder-only features drafter reads no state before
  // the second one.
  int64_t first_position() const { return reads_features() && !encoder_decoder ? 1 : 0; }
  // Returns whether the model has T5's own ways: unscaled initial weights, dropouts inside and behind the stacks, and
  // fp16 that needs care.
  bool t5_like() const { return encoder_decoder && positions == Positions::kRelativeBias; }
  bool has_encoder() const { return encoder_decoder && !tandem_secondary() && !shares_encoder() && !reads_features(); }
  // Returns the width of the encoder states that a model without an encoder projects.
  int64_t projected_width() const { return shares_encoder() ? shared_encoder_width : tandem.primary_width; }
};

}  // namespace draftsmith::model
