// Attention on CPUs beneath cached_attention(): softmax(scale q k^T + bias) v over caches in place. A step of few
// tokens takes one query and head at a time; sources and prompts take products of blocks, from which a query's highest
// score and sums go on to the next (Milakov and Gimelshein 2018; Dao et al. 2022). They depend on its own keys alone.
#pragma once

#include <cstdint>

namespace draftsmith::model {

// ---- One query and head at a time
// Instantiated for float and double in block_attention.cpp, once for each vector width of x86-64.

struct VisibleKeys;

// Longer steps (prompts) are computed in blocks.
inline constexpr int64_t kLongestQueryLoop = 32;

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

template <class T>
struct KernelPointers {
  const T* query;   // [B,L,H*K], strided
  const T* keys;    // [R,kv,T,K]
  const T* values;  // [R,kv,T,K]
  const T* bias;    // [H,n] or null; column n-γ-d holds distance d, with γ = VisibleKeys::block
  T* context;       // [B,L,H*K]; zeros for queries that see no key or don't matter
};

// Tokens of a row, of the heads that read one head of keys.
struct HeadPart {
  int64_t row = 0;
  int64_t key_head = 0;
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

// Computes all heads, on all threads; in fp32 in blocks if attends_in_blocks().
template <class T>
void attention_kernel(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers);

// Computes one head of one row's queries, on the calling thread. Allocates nothing once the thread has read as many
// keys.
template <class T>
void attend_head(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers, int64_t row,
                 int64_t head);

// Returns whether a step is computed in blocks: it has many tokens, and each sees the slots before its own, but no
// later one.
bool attends_in_blocks(const KernelShape& shape, const VisibleKeys& visible);
// Returns how many tokens of such a step a call of attend_in_blocks() should compute.
int64_t tokens_of_part(const KernelShape& shape, const VisibleKeys& visible);
// Computes the tokens [begin,end) of a row for all heads that read one head of keys, on the calling thread.
void attend_in_blocks(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<float>& pointers,
                      const HeadPart& part);

// ---- Blocks of queries and keys

// Queries of one row, of all heads that read one head of keys and values.
struct BlockHead {
  const float* query = nullptr;   // of token 0 and the first head; heads lie K numbers apart, like those of the context
  const float* keys = nullptr;    // [S,K]
  const float* values = nullptr;  // [S,K]
  const float* bias = nullptr;  // of token 0 and key 0; bias[s - t] is added to the score of token t and key s. Or null
  float* context = nullptr;     // zeros for a query that sees no key
  int64_t heads = 1;            // of queries
  int64_t width = 0;            // K
  int64_t prefix = 0;           // token 0 sees the keys [0,prefix)
  bool growing = false;         // each token sees one key more than the token before
  int64_t window = 0;           // of growing tokens: each sees the last so many of its keys; 0: all
  int64_t query_stride = 0;     // numbers from a token to the next
  int64_t key_stride = 0;       // likewise of keys, and of values
  int64_t context_stride = 0;
  int64_t bias_stride = 0;  // numbers from a head's bias to the next
  double scale = 1;
  double score_cap = 0;
};

// Computes the queries of the tokens [begin,end), on the calling thread. Allocates nothing once the thread has computed
// as many of that width.
void attend_blocks(const BlockHead& head, int64_t begin, int64_t end);

// Returns how many tokens a call of attend_blocks() should compute: all in one, or fewer, so that `threads` threads
// share `calls` heads of keys with so many tokens well. A call lays out its keys anew.
int64_t block_tokens(int64_t tokens, int64_t calls, int64_t heads, int64_t threads);

}  // namespace draftsmith::model
