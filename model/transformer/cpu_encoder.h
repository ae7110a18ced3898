// An encoder on CPUs, for packed models: its layers over whole sources, and the keys and values that decoders attend
// to.
#pragma once

#include "model/transformer/cpu_pass.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

// Sources longer than so many tokens are better matrix products than a loop over queries.
inline constexpr int64_t kLongestCpuSource = 256;

class CpuEncoder final : public CpuPass {
 public:
  // Returns the calling thread's, which keeps its memory.
  static CpuEncoder& of_thread();

  struct Layers {
    std::span<const LayerWeightsView> weights;
    RowNorm final_norm;
    at::Tensor bias = {};  // of scores, fp32 [1,H,S,S]; undefined: none
  };
  // Replaces the embedded tokens hidden [B,S,D] of rows of these lengths by the encoder's output. Tokens behind a row's
  // end become finite numbers that nothing depends on.
  void encode(const Layers& layers, const std::vector<int64_t>& lengths, const at::Tensor& hidden);
  // Returns the keys and values of encoder states [R,S,D] for each decoder layer.
  std::vector<CrossCache> cross_caches(std::span<const LayerWeightsView> decoder, const at::Tensor& states);

 private:
  void compute(const Phase& phase, int64_t begin, int64_t end) const override;
  void attend(const Phase& phase, int64_t row, int64_t head) const;
  void split(const Phase& phase, int64_t row, int64_t head) const;

  const std::vector<int64_t>* lengths_ = nullptr;
  int64_t tokens_ = 0;  // S
  at::Tensor bias_;
  std::vector<CrossCache> caches_;
  Buffer key_value_;
};

}  // namespace draftsmith::model
