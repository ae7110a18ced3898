// Weights laid out for decoding on CPUs: packed linear layers y = x W^T + b for the few rows x of a step. Each row's
// sums are taken in one order, so a token's logits do not depend, to the last bit, on the tokens beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/aten.h"
#include "model/cpu/panel_kernels.h"
#include "model/cpu/row_operations.h"
#include "model/layers/parameter_source.h"

namespace draftsmith::model {

// A weight matrix of fp32, bf16 or int8; inputs, sums and outputs are fp32. With AVX-512 fp32 is 1 to 3 times as fast
// as MKL up to 64 rows. Bf16 weights are widened in registers, which is exact: AVX512_BF16 would round the inputs too.
//
// Int8: W[o,i] = scale[o] w[o,i], w from -127 to 127. Inputs are rounded to int8 too, with one scale for each group of
// 128 inputs of a row. Products of a group are added as integers, exactly; groups are added in order, in fp32. NaN and
// infinity among the inputs of a group make the row's outputs NaN.
class PackedWeights {
 public:
  // Operation on the sums before they are stored.
  enum class Finish { kNone, kRelu };

  // Rows of inputs, and where their outputs go.
  struct Rows {
    const float* x;         // [count,in]
    const float* residual;  // [count,out], added; or null
    int64_t count;
    float* y;  // [count,out]; may be `residual`
    // Number of these inputs in the process: what a matrix makes of them may serve later runs of the thread with the
    // same number. 0: none.
    uint64_t number = 0;
  };

  virtual ~PackedWeights() = default;
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }

  // Returns x W^T + b with the finish applied, and the residual [...,out] added before if there is one: x [...,in],
  // fp32 -> [...,out]. On all threads.
  at::Tensor multiply(const at::Tensor& x, Finish finish, const at::Tensor& residual = {}) const;
  // Computes the outputs of some panels, on the calling thread alone. Allocates nothing once a thread has processed as
  // many rows of as many inputs.
  virtual void run(PanelRange panels, const Rows& rows, Finish finish) const = 0;

 protected:
  // `products`: multiplications that take about as long as it takes a second thread to begin.
  PackedWeights(int64_t inputs, int64_t outputs, int64_t products)
      : inputs_(inputs), outputs_(outputs), products_(products) {}

  int64_t inputs_;
  int64_t outputs_;

 private:
  int64_t products_;
};

// Returns the type of hidden states, caches and all parameters but the weights of linear layers in a model that is
// loaded for decoding in `type`: weights of int8, and on CPUs of bf16, go with fp32.
at::ScalarType number_type(at::ScalarType type, at::Device device);

// ---- Weights of a decoder's layers
// Views of a model's packed layers, which must outlive them.

struct AttentionWeightsView {
  RowNorm norm;
  RowNorm output_norm;                   // behind the sublayer; the same unless there are two
  const PackedWeights* input = nullptr;  // D -> query, key and value side by side; of a cross-attention the query alone
  const PackedWeights* key_value = nullptr;  // of a cross-attention: encoder states -> key and value side by side
  const PackedWeights* output = nullptr;
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_width = 0;
  double scale = 1;
  RowNorm query_norm = {};  // of a self-attention's queries, and of its keys, before rotation; without weights: none
  RowNorm key_norm = {};
  bool norms_width = false;  // of all heads of a token together; else of each
  bool rotates = false;      // queries and keys, by the state's table
  double score_cap = 0;      // HeadShape's
  int64_t window = 0;        // likewise

  int64_t inner() const { return heads * head_width; }
  // Returns the numbers of a token's keys, and of its values.
  int64_t shared_inner() const { return key_value_heads * head_width; }
};

struct FeedForwardWeightsView {
  RowNorm norm;
  RowNorm output_norm;
  const PackedWeights* gate = nullptr;  // null: none
  const PackedWeights* up = nullptr;
  const PackedWeights* down = nullptr;
  PostOp activation = PostOp::kRelu;  // of the gate, or of `up` if there is none
};

struct LayerWeightsView {
  AttentionWeightsView self;
  std::optional<AttentionWeightsView> cross;
  FeedForwardWeightsView feed_forward;
  bool parallel_residual = false;  // the feed-forward sublayer reads the layer's input
  NormPlace norm_place = NormPlace::kBefore;
  float residual_scale = 1;  // factor on what each sublayer adds

  // Returns whether sums may be written over the rows that a sublayer adds to.
  bool adds_in_place() const { return norm_place == NormPlace::kBefore && residual_scale == 1; }
};

// ---- Memory in huge pages
// In 4 KB pages, weights that are read once a token wait for address translation: 13 against 20 GB/s on one core of the
// machines measured.

// Allocates pieces of large blocks, each of which lives as long as a tensor in it.
class WeightArena {
 public:
  // Layers keep their plain weights beside the packed ones, for gradients, in twice the memory.
  WeightArena() = default;
  // Layers keep the packed weights only, in `type`, and on CPUs compute in number_type() of it. If that is fp32,
  // weights may be given in another float type.
  explicit WeightArena(at::ScalarType type) : only_packed_(type) {}

  // Returns the type of weights that are kept without the plain ones; nothing if plain weights are kept.
  std::optional<at::ScalarType> only_packed() const { return only_packed_; }
  // Returns uninitialised memory of the given shape and type, aligned to 64 bytes.
  at::Tensor take(at::IntArrayRef shape, at::ScalarType type);

 private:
  std::optional<at::ScalarType> only_packed_;
  std::shared_ptr<std::byte> block_;
  size_t used_ = 0;
  size_t size_ = 0;
};

// Packs weights [out,in], stored in any float type on the CPU, as one matrix of fp32, bf16 or int8: the outputs of each
// behind those before it, with fp32 bias of all outputs (undefined: none). Returns null for other types, and for
// weights that are on another device, empty or no floats. Errors: RunError for int8 of weights that are not finite.
std::shared_ptr<const PackedWeights> packed_weights(at::TensorList weights, const at::Tensor& bias, at::ScalarType type,
                                                    WeightArena& arena, Instructions instructions = cpu_instructions());

}  // namespace draftsmith::model
