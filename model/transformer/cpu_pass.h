// Work on hidden states that steps and encoders on CPUs share, for packed models: one program of a team
// (model/cpu/team.h), in memory that is kept from pass to pass. A row's sums do not depend on other rows.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cpu/packed_weights.h"
#include "model/cpu/team.h"

namespace draftsmith::model {

class CpuPass : public TeamProgram {
 public:
  // Computes what was added.
  void run();
  // Does so where more will be added, at a point where long work may end (base/signals.h).
  void run_part();

  int64_t phases() const override { return static_cast<int64_t>(phases_.size()); }
  int64_t items(int64_t phase) const override { return phases_[static_cast<size_t>(phase)].items; }
  void run(int64_t phase, int64_t begin, int64_t end) const override;

 protected:
  enum class Work { kNorm, kProduct, kFeedForward, kSelfAttention, kCrossAttention, kSplit };

  // Rows that a product or norm reads.
  struct Input {
    const float* rows = nullptr;
    int64_t count = 0;
    const RowNorm* norm = nullptr;         // of the rows; null: as they are
    float scale = 1;                       // of normed rows
    std::span<const int64_t> picked = {};  // numbers of the rows; empty: the first ones
    int64_t key = 0;                       // of this norm within the pass
  };
  struct Phase {
    Work work = Work::kNorm;
    int64_t items = 0;
    Input input = {};
    const PackedWeights* weights = nullptr;
    const float* residual = nullptr;
    float* output = nullptr;
    const AttentionWeightsView* attention = nullptr;
    const FeedForwardWeightsView* feed_forward = nullptr;
    int64_t layer = 0;
    int64_t part = 0;  // tokens that an item of an attention computes; 0: all

    // Returns how many parts so many tokens have.
    int64_t parts(int64_t tokens) const { return part == 0 ? 1 : (tokens + part - 1) / part; }
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
  void add_product(const Input& input, const PackedWeights& weights, const float* residual, float* output);
  void add_feed_forward(const FeedForwardWeightsView& weights, const float* input, const float* residual,
                        float* output);
  // Returns memory for a layer's output that is not `input`.
  float* other_than(const float* input) const { return buffers_[input == buffers_[0].data() ? 1 : 0].data(); }
  // Computes items of any other work.
  virtual void compute(const Phase& phase, int64_t begin, int64_t end) const = 0;

  int64_t rows_ = 0;
  int64_t width_ = 0;
  std::vector<Phase> phases_;
  Buffer buffers_[2];  // hidden states, of layers in turn
  Buffer projected_;
  Buffer context_;

 private:
  // Returns the rows of an input as products read them: [count,width].
  const float* rows_of(const Input& input) const;
  // Returns the number, of all passes of the process, of what a phase's products read.
  uint64_t number_of(const Phase& phase) const;
  void normalize(const Input& input, int64_t begin, int64_t end, float* to) const;
  void multiply(const Phase& phase, int64_t begin, int64_t end) const;
  void feed_forward(const Phase& phase, int64_t begin, int64_t end) const;

  uint64_t number_ = 0;  // of this pass in the process
  int64_t norms_ = 0;
  Buffer normed_;
  Buffer inner_;
  Buffer up_;
};

}  // namespace draftsmith::model
