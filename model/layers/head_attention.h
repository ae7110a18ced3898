// Attention of whole sequences in training on CPUs, one head of one row at a time (Dao et al. 2022, without blocks of
// keys): scores stay in a thread's caches and are computed again in the backward pass, with the same dropout mask.
#pragma once

#include "base/aten.h"
#include "base/random_tensors.h"

namespace draftsmith::model {

struct HeadAttentionInput {
  at::Tensor query;     // [B,T,H*K]
  at::Tensor key;       // [B,S,kv*K], each head read by H / kv heads of queries
  at::Tensor value;     // [B,S,kv*K]
  at::Tensor additive;  // [B*H,T,S] fp32, added to the scores; undefined: nothing
  int64_t width = 0;    // K
  double scale = 1;     // factor on q·k
  double dropout = 0;   // probability; of the weights, a tensor [B*H,T,S]
  DropoutKey key_of_mask = {};
};

// Returns whether attention_by_heads() takes the tensors: fp32 or bf16 on a CPU, of which a gradient is recorded.
bool attends_by_heads(const HeadAttentionInput& input);

// Returns the context [B,T,H*K], in the query's type, with gradients of query, key, value and additive. Scores are
// fp32 in either type. Keeps no scores for the backward pass.
at::Tensor attention_by_heads(const HeadAttentionInput& input);

}  // namespace draftsmith::model
