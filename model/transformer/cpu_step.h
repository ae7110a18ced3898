// A decoding step on CPUs, for packed models: layers over their caches, and the head.
#pragma once

#include "model/cpu/attention_kernel.h"
#include "model/layers/visible_keys.h"
#include "model/transformer/cpu_pass.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

// Rows of hidden states that become logits: finished hidden states W^T, of rows [rows] of a step's tokens.
struct HeadPass {
  RowNorm norm;
  float scale = 1;  // of normed states
  const PackedWeights* head = nullptr;
  std::span<const int64_t> rows = {};
  float* logits = nullptr;  // [rows,V]
};

class CpuStep final : public CpuPass {
 public:
  // Returns the calling thread's, which keeps its memory from step to step.
  static CpuStep& of_thread();

  // Begins a step with layers of these, whose hidden states have `width` numbers. The state has room for the layout
  // (make_room()). All that is given outlives run().
  void begin(const StepLayout& layout, DecoderState& state, int64_t width, std::span<const LayerWeightsView> layers);
  // Returns memory for the input of the first layer: [B*L,D].
  float* input() { return buffers_[0].data(); }
  // Sets the input of the first layer, where it is not in that memory.
  void set_input(const float* hidden) { hidden_ = hidden; }
  // Adds a layer, which reads what the last one wrote, and writes to `output` [B*L,D]; null: to memory of this step.
  void add_layer(const LayerWeightsView& weights, int64_t layer, float* output = nullptr);
  // Adds the head.
  void add_head(const HeadPass& pass);

 private:
  // Computes attention, to the prefix or to the source.
  void compute(const Phase& phase, int64_t begin, int64_t end) const override;
  KernelShape shape_of(Work work, const AttentionWeightsView& weights, int64_t layer) const;
  void add_attention(Work work, const AttentionWeightsView& weights, int64_t layer);
  void write_key_value(const Phase& phase, int64_t row, int64_t head) const;

  const StepLayout* layout_ = nullptr;
  DecoderState* state_ = nullptr;
  VisibleKeys self_;
  VisibleKeys cross_;
  RowNorm head_norm_;
  const float* hidden_ = nullptr;
};

}  // namespace draftsmith::model
