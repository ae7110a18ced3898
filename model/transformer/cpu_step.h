// A decoding step on CPUs, for packed models: all layers and the head as one program of a team (model/cpu/team.h), in
// memory that the thread keeps. Sums of a row do not depend on the rows and tokens that are processed with it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cpu/layer_weights.h"
#include "model/cpu/team.h"
#include "model/layers/visible_keys.h"
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

class CpuStep final : public TeamProgram {
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
  // Returns the output of the last layer that was added: [B*L,D], valid until the next step of this thread.
  const float* hidden() const { return hidden_; }
  // Computes what was added.
  void run();

  int64_t phases() const override { return static_cast<int64_t>(phases_.size()); }
  int64_t items(int64_t phase) const override { return phases_[static_cast<size_t>(phase)].items; }
  void run(int64_t phase, int64_t begin, int64_t end) const override;

 private:
  // Inputs of a product, normed by each thread for itself or, where there are many rows, in a phase of its own.
  struct Input {
    const float* rows = nullptr;
    int64_t count = 0;
    const RowNorm* norm = nullptr;         // null: as they are
    float scale = 1;                       // of normed rows
    std::span<const int64_t> picked = {};  // numbers of the rows; empty: the first ones
    int64_t key = 0;                       // of this norm within the step
  };
  struct Phase {
    void (CpuStep::*run)(const Phase&, int64_t, int64_t) const = nullptr;
    int64_t items = 0;
    Input input = {};
    const PackedWeights* weights = nullptr;
    const float* residual = nullptr;
    float* output = nullptr;
    const AttentionWeightsView* attention = nullptr;
    const FeedForwardWeightsView* feed_forward = nullptr;
    int64_t layer = 0;
  };

  // Memory that grows and is never given back.
  class Buffer {
   public:
    float* data() const { return memory_.get(); }
    void fit(int64_t numbers);

   private:
    std::unique_ptr<float[]> memory_;
    int64_t size_ = 0;
  };

  // Returns the input's norm as an input of products.
  Input normed(Input input);
  void add_product(const Input& input, const PackedWeights& weights, const float* residual, float* output);
  void add_attention(const AttentionWeightsView& weights, int64_t layer, bool self);
  void add_feed_forward(const FeedForwardWeightsView& weights, const float* input, const float* residual,
                        float* output);
  Input all_rows(const float* rows) const { return {.rows = rows, .count = tokens_}; }
  // Returns the rows of an input as products read them: [count,width].
  const float* rows_of(const Input& input) const;
  void normalize(const Input& input, int64_t begin, int64_t end, float* to) const;

  void run_norm(const Phase& phase, int64_t begin, int64_t end) const;
  void run_product(const Phase& phase, int64_t begin, int64_t end) const;
  void run_feed_forward(const Phase& phase, int64_t begin, int64_t end) const;
  void run_self_attention(const Phase& phase, int64_t begin, int64_t end) const;
  void run_cross_attention(const Phase& phase, int64_t begin, int64_t end) const;
  void write_key_value(const Phase& phase, int64_t row, int64_t head) const;

  uint64_t number_ = 0;  // of this step in the process
  RowNorm head_norm_;
  const StepLayout* layout_ = nullptr;
  DecoderState* state_ = nullptr;
  VisibleKeys self_;
  VisibleKeys cross_;
  int64_t width_ = 0;
  int64_t tokens_ = 0;  // B*L
  int64_t norms_ = 0;
  const float* hidden_ = nullptr;
  std::vector<Phase> phases_;
  Buffer buffers_[2];  // hidden states, of layers in turn
  Buffer normed_;
  Buffer projected_;
  Buffer context_;
  Buffer inner_;
  Buffer up_;
};

}  // namespace draftsmith::model
