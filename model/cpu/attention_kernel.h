// The CPU kernel beneath cached_attention(): softmax(scale q k^T + bias) v for one query and head at a time, over
// caches in place. Instantiated for float and double in attention_kernel.cpp, once for each vector width of x86-64.
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
};

template <class T>
struct KernelPointers {
  const T* query;   // [B,L,H*K], strided
  const T* keys;    // [R,kv,T,K]
  const T* values;  // [R,kv,T,K]
  const T* bias;    // [H,n] or null; column n-1-d holds distance d
  T* context;       // [B,L,H*K]; zeros for queries that see no key or don't matter
};

// Computes all heads, on all threads.
template <class T>
void attention_kernel(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers);

// Computes one head of one row's queries, on the calling thread. Allocates nothing once the thread has read as many
// keys.
template <class T>
void attend_head(const KernelShape& shape, const VisibleKeys& visible, const KernelPointers<T>& pointers, int64_t row,
                 int64_t head);

// One head of a whole sequence whose tokens all see each other.
struct SequenceHead {
  const float* query = nullptr;  // [T,K], rows `stride` numbers apart; so are the keys and values
  const float* keys = nullptr;
  const float* values = nullptr;
  const float* bias = nullptr;  // [T,S], added to scores, rows `bias_stride` numbers apart; null: none
  float* context = nullptr;     // [T,K], rows `context_stride` numbers apart
  int64_t tokens = 0;
  int64_t stride = 0;
  int64_t bias_stride = 0;
  int64_t context_stride = 0;
  int64_t width = 0;  // K
  double scale = 1;
};

// Computes it, on the calling thread, with the same sums whatever the sequences beside it.
void attend_sequence(const SequenceHead& head);

}  // namespace draftsmith::model
