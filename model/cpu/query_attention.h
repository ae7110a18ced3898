// Attention on CPUs beneath cached_attention(): softmax(scale q k^T + bias) v over caches in place. A step of few
// tokens takes one query and head at a time; prompts take blocks (model/cpu/block_attention.h). In fp32.
#pragma once

#include <cstdint>

namespace draftsmith::model {

struct VisibleKeys;

struct KernelShape {
  int64_t tokens = 0;              // L
  int64_t heads = 0;               // H
  int64_t key_value_heads = 0;     // of the caches; divides H
  int64_t head_width = 0;          // K
  int64_t slots = 0;               // T of the caches
  int64_t query_row_stride = 0;    // elements between rows of the query
  int64_t query_token_stride = 0;  // elements between tokens
  int64_t bias_columns = 0;        // n of the bias table [H,n]; 0: none
  double scale = 1.0;
  double score_cap = 0;  // c of scores c tanh(s / c); 0: none
  int64_t window = 0;    // a query sees so many keys, its own position's the last; 0: all before it
};

struct KernelPointers {
  const float* query;   // [B,L,H*K], strided
  const float* keys;    // [R,kv,T,K]
  const float* values;  // [R,kv,T,K]
  const float* bias;    // [H,n] or null; column n-γ-d holds distance d, with γ = VisibleKeys::block
  float* context;       // [B,L,H*K]; zeros for queries that see no key or don't matter
};

// Tokens of a row, of the heads that read one head of keys.
struct HeadPart {
  int64_t row = 0;
  int64_t key_head = 0;
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Computes all heads, on all threads.
void attention_kernel(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers);

// Returns how many tokens a call of attend_part() should compute of a step that is computed in blocks, as prompts are:
// of many tokens, none of which sees a later one or has a slot of its own. 0: of any other step; a call computes all.
int64_t tokens_of_part(const KernelShape& shape, const VisibleKeys& visible);
// Computes the part, on the calling thread. Allocates nothing once the thread has read as many keys.
void attend_part(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers& pointers,
                 const HeadPart& part);

}  // namespace draftsmith::model
