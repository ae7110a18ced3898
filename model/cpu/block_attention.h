// Attention of many queries over keys in fp32, in products of blocks, from which a query's highest score and sums go on
// to the next (Milakov and Gimelshein 2018; Dao et al. 2022). They depend on the query's own keys alone.
#pragma once

#include <cstdint>

namespace draftsmith::model {

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
