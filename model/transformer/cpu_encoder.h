// An encoder on CPUs, for packed models: its layers over whole sources, and the keys and values that decoders attend
// to.
#pragma once

#include "model/transformer/cpu_pass.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

class CpuEncoder final : public CpuPass {
 public:
  // Returns the calling thread's, which keeps its memory.
  static CpuEncoder& of_thread();

  struct Layers {
    std::span<const LayerWeightsView> weights;
    RowNorm final_norm;
    at::Tensor bias = {};  // of scores, fp32 [H,2S-1], PositionBias::by_distance; undefined: none
  };
  // Replaces the embedded tokens hidden [B,S,D] of rows of these lengths by the encoder's output. Tokens behind a row's
  // end become finite numbers that nothing depends on. Its memory is for as many rows as have about a thousand tokens.
  void encode(const Layers& layers, const std::vector<int64_t>& lengths, const at::Tensor& hidden);
  // Returns the keys and values of encoder states [R,S,D] for each decoder layer.
  std::vector<CrossCache> cross_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states);

 private:
  // Computes the rows [begin,end) of hidden.
  void encode_rows(const Layers& layers, const at::Tensor& hidden, int64_t begin, int64_t end);
  // Computes the rows [begin,end) of the caches.
  void fill_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states, int64_t begin, int64_t end);
  void compute(const Phase& phase, int64_t begin, int64_t end) const override;
  // Computes a part of the queries of one head of keys.
  void attend(const Phase& phase, int64_t row, int64_t head, int64_t part) const;
  void split(const Phase& phase, int64_t row, int64_t head) const;

  const std::vector<int64_t>* lengths_ = nullptr;
  int64_t tokens_ = 0;     // S
  int64_t first_row_ = 0;  // of the pass in the batch
  at::Tensor bias_;
  std::vector<CrossCache> caches_;
  Buffer key_value_;
};

}  // namespace draftsmith::model
