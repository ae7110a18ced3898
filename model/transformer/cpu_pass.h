// Work on hidden states on CPUs, for packed models: what all passes share, steps of decoders, and encoders. A pass is
// one program of a team (model/cpu/team.h), in memory that is kept from pass to pass. A row's sums do not depend on
// other rows.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cpu/packed_weights.h"
#include "model/cpu/query_attention.h"
#include "model/cpu/team.h"
#include "model/layers/dense_attention.h"
#include "model/layers/step_operators.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

class CpuPass : public TeamProgram {
 public:
  // Computes what was added.
  void run();
  // Does so where more will be added, at a point where long work may end (base/signals.h).
  void run_part();
  // From so many tokens on, as of long prompts, each layer is such a part: it may take a second.
  static constexpr int64_t kLongPass = 1024;

  int64_t phases() const override { return static_cast<int64_t>(phases_.size()); }
  int64_t items(int64_t phase) const override { return phases_[static_cast<size_t>(phase)].items; }
  void run(int64_t phase, int64_t begin, int64_t end) const override;

 protected:
  enum class Work { kNorm, kProduct, kFeedForward, kSelfAttention, kCrossAttention, kSplit, kHeadNorm };

  // Rows that a product or norm reads.
  struct Input {
    const float* rows = nullptr;
    int64_t count = 0;
    const RowNorm* norm = nullptr;         // of the rows; null: as they are
    float scale = 1;                       // of normed rows
    std::span<const int64_t> picked = {};  // numbers of the rows; empty: the first ones
    int64_t key = 0;                       // within the pass, of what each thread computes for itself; 0: nothing
  };
  struct Phase {
    Work work = Work::kNorm;
    int64_t items = 0;
    Input input = {};
    const PackedWeights* weights = nullptr;
    Input residual = {};  // added to what a product or norm gives
    float scale = 1;      // factor on the latter
    float* output = nullptr;
    const AttentionWeightsView* attention = nullptr;
    const FeedForwardWeightsView* feed_forward = nullptr;
    int64_t layer = 0;
    int64_t part = 0;  // tokens that an item of an attention computes; 0: all

    // Returns how many parts so many tokens have.
    int64_t parts(int64_t tokens) const { return part == 0 ? 1 : (tokens + part - 1) / part; }
  };

  // The rows that sublayers add to, and a norm that these still go through (NormPlace::kAfterSum): whoever reads them
  // norms them, which takes no phase of its own.
  struct Stream {
    const float* rows = nullptr;
    const RowNorm* norm = nullptr;
  };
  // A sublayer's input, and what its output is added to.
  struct Sublayer {
    const LayerWeightsView* layer = nullptr;
    const RowNorm* norm = nullptr;  // behind it
    Input input = {};
    Input residual = {};
  };

  // Memory that is kept from pass to pass. Much of it (16 MB) is given back when a pass needs less than an eighth.
  class Buffer {
   public:
    float* data() const { return memory_.get(); }
    int64_t size() const { return size_; }
    // Makes room for so many numbers. What was in it is lost.
    void fit(int64_t numbers);

   private:
    std::unique_ptr<float[]> memory_;
    int64_t size_ = 0;
  };

  // Begins a pass over rows of hidden states of `width` numbers through layers of these.
  void begin_pass(int64_t rows, int64_t width, std::span<const LayerWeightsView> layers);
  // Returns an input's normed rows as an input of a product: each thread norms them for itself or, where there are
  // many, all together in a phase of its own.
  Input normed(Input input);
  Input all_rows(const float* rows, const RowNorm* norm = nullptr) const {
    return {.rows = rows, .count = rows_, .norm = norm};
  }
  void add_product(const Input& input, const PackedWeights& weights, float* output);
  // Begins a sublayer of the stream with its norm and the one behind it, which is the same unless there are two. A norm
  // before it is of the rows `read`: the stream's, unless residuals are parallel.
  Sublayer begin_sublayer(const LayerWeightsView& layer, const RowNorm& norm, const RowNorm& behind, const float* read);
  // Ends it with the product of its inner rows, and writes the stream to `to`: other memory than before, unless the
  // layer adds in place.
  void end_sublayer(const Sublayer& sublayer, const float* inner, const PackedWeights& weights, float* to);
  void add_feed_forward(const LayerWeightsView& layer, const float* read, float* to);
  // Writes the stream to `to` as it is, without a norm that others would have to apply.
  void settle(float* to);
  // Returns memory for a layer's output that is not `input`.
  float* other_than(const float* input) const { return buffers_[input == buffers_[0].data() ? 1 : 0].data(); }
  // Computes items of any other work.
  virtual void compute(const Phase& phase, int64_t begin, int64_t end) const = 0;

  int64_t rows_ = 0;
  int64_t width_ = 0;
  Stream stream_;
  std::vector<Phase> phases_;
  Buffer buffers_[2];  // hidden states, of layers in turn
  Buffer projected_;
  Buffer context_;

 private:
  // Returns the rows of an input as products read them: [count,width].
  const float* rows_of(const Input& input) const;
  // Returns the number, of all passes of the process, of what a phase's products read.
  uint64_t number_of(const Phase& phase) const;
  // Writes an input's rows [begin,end), normed and scaled.
  void normalize(const Input& input, int64_t begin, int64_t end, float* to) const;
  void multiply(const Phase& phase, int64_t begin, int64_t end) const;
  void feed_forward(const Phase& phase, int64_t begin, int64_t end) const;

  uint64_t number_ = 0;  // of this pass in the process
  int64_t norms_ = 0;
  Buffer normed_;
  Buffer inner_;
  Buffer up_;
};

// ---- Steps of a decoder
// Layers over their caches, and the head. Steps allocate nothing from the second one of a size on, apart from what
// callers keep.

// Rows of hidden states that become logits: finished hidden states W^T, of rows [rows] of a step's tokens.
struct HeadPass {
  RowNorm norm;     // without weights: none
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
  void set_input(const float* hidden) { stream_ = {hidden}; }
  // Adds a layer, which reads what the last one wrote, and writes to `output` [B*L,D]; null: to memory of this step.
  // `projected`: rows that its self-attention projects, of as many numbers as it reads; null: the layer's input,
  // normed.
  void add_layer(const LayerWeightsView& weights, int64_t layer, float* output = nullptr,
                 const float* projected = nullptr);
  // Adds the head.
  void add_head(const HeadPass& pass);

 private:
  // Computes attention, to the prefix or to the source.
  void compute(const Phase& phase, int64_t begin, int64_t end) const override;
  KernelShape shape_of(Work work, const AttentionWeightsView& weights, int64_t layer) const;
  void add_attention(Work work, const AttentionWeightsView& weights, int64_t layer);
  void write_key_value(const Phase& phase, int64_t row, int64_t head) const;
  // Norms the queries and keys of a token, all heads together.
  void norm_heads(const AttentionWeightsView& weights, int64_t token) const;

  const StepLayout* layout_ = nullptr;
  DecoderState* state_ = nullptr;
  VisibleKeys self_;
  VisibleKeys cross_;
  RowNorm head_norm_;
};

// ---- An encoder
// Its layers over whole sources, and the keys and values that decoders attend to.

class CpuEncoder final : public CpuPass {
 public:
  // Returns the calling thread's, which keeps its memory.
  static CpuEncoder& of_thread();

  struct Layers {
    std::span<const LayerWeightsView> weights;
    RowNorm final_norm;  // without weights: none
    // Biases of scores, fp32 [H,2S-1], PositionBias::by_distance: one for all layers or one for each; empty: none.
    std::vector<at::Tensor> biases = {};
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
  // Returns the bias of a layer's scores; null: none.
  const float* bias_of(int64_t layer) const;

  const std::vector<int64_t>* lengths_ = nullptr;
  int64_t tokens_ = 0;     // S
  int64_t first_row_ = 0;  // of the pass in the batch
  std::vector<at::Tensor> biases_;
  std::vector<CrossCache> caches_;
  Buffer key_value_;
};

}  // namespace draftsmith::model
