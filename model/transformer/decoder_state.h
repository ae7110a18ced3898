// The decode state that TransformerModel makes: K/V caches [B,kv,T,K] of every layer with a length per row and layer,
// and the cross-attention K/V of the sources, shared by all rows of one source. Its recorded steps, and states kept for
// later batches.
// Methods inside a model (early exits, CALM, PPD, Tandem) use the lengths per layer and the branch slots; other
// decoding needs only DecodeState.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/device_graph.h"
#include "model/layers/attention.h"
#include "model/layers/step_operators.h"
#include "model/transformer/language_model.h"

namespace draftsmith::model {

// ---- A step through some of the decoder's layers
// Early exits draft with the first ones, and verify with the others.

// L tokens a row, or the output of the layer before.
struct StepPart {
  LayerRange layers;
  at::Tensor tokens = {};                       // int64 [B,L] where layers begin at 0
  at::Tensor hidden = {};                       // [B,L,D] input of the first layer; undefined: tokens are. A features
                                                // drafter has both: states, to which its first layer adds
  Logits logits = Logits::kNone;                // of the last layer's output, by the model's own final norm and head
  std::span<const int64_t> hidden_layers = {};  // wanted, as in StepInput, from layers.begin to layers.end
};

// ---- Recorded steps of one decode state
// From the second step of a kind on, a step is one launch (base/device_graph.h).

// Kind of step: steps of one state and kind are alike. Lengths and places of rows may differ: recorded work reads them
// on the device.
struct StepKind {
  int64_t rows = 0;
  int64_t tokens = 0;
  Logits logits = Logits::kAll;
  std::vector<int64_t> hidden_layers;

  auto operator<=>(const StepKind&) const = default;
};

struct StepGraph {
  at::Tensor tokens;  // int64 [B,L] that the work reads
  at::Tensor places;  // DecoderState::packed_places() that the work reads
  StepOutput output;  // that it writes
  std::unique_ptr<RecordedWork> work;
  uint64_t used = 0;  // when it was needed last
};

class StepGraphs {
 public:
  // Returns the graph of a kind, perhaps not recorded yet; null on the first call: recording a kind that comes once
  // costs more than it saves. Of too many kinds the one that was needed least recently is forgotten: each has memory
  // for its output.
  StepGraph* find(const StepKind& kind) {
    const auto [place, first] = graphs_.try_emplace(kind);
    place->second.used = ++calls_;
    if (std::ssize(graphs_) > kMostKinds) {
      graphs_.erase(std::ranges::min_element(
          graphs_, [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
    return first ? nullptr : &place->second;
  }
  // Returns the memory that the graphs share: a step's output lives until the state's next step.
  WorkMemory& memory() { return memory_; }
  // Forgets what was recorded. Needed when tensors are replaced that the work reads.
  void clear() { graphs_.clear(); }

 private:
  static constexpr int64_t kMostKinds = 32;

  WorkMemory memory_;
  uint64_t calls_ = 0;
  std::map<StepKind, StepGraph> graphs_;
};

// ---- The decode state

// Self-attention cache of one layer. R >= B: on CPUs rows that left the batch keep their place.
struct LayerCache {
  at::Tensor keys;               // [R,kv,T,K], T grows up to the capacity and a spare slot; further for siblings
  at::Tensor values;             // [R,kv,T,K]
  std::vector<int64_t> lengths;  // [B]
};

// Cross-attention K/V of one layer, one row a source.
struct CrossCache {
  at::Tensor keys;    // [R,H,S,K]
  at::Tensor values;  // [R,H,S,K]
};

// Tables of positions for a step's attention: a bias of scores, or rotations.
struct PositionTables {
  int64_t count = 0;  // positions they cover
  at::Tensor bias;    // [H,n], PositionBias::reversed_table; undefined: none
  RotaryTable rotary;
  std::vector<at::Tensor> layer_biases = {};  // of each layer instead of `bias`, where layers have their own
  RotaryTable window_rotary = {};             // of layers with windows, where they rotate otherwise

  const at::Tensor& bias_of(int64_t layer) const {
    return layer_biases.empty() ? bias : layer_biases[static_cast<size_t>(layer)];
  }
  const RotaryTable& rotary_of(bool windowed) const {
    return windowed && window_rotary.positions() > 0 ? window_rotary : rotary;
  }
};

struct DecoderStateShape {
  int64_t rows = 0;
  int64_t capacity = 0;
  int64_t layers = 0;
  HeadShape heads;
  at::TensorOptions options;
  int64_t block = 1;  // γ of block attention: steps are of whole blocks, whose tokens see each other; 1: of tokens
};

class DecoderState final : public DecodeState {
 public:
  explicit DecoderState(const DecoderStateShape& shape);

  int64_t rows() const override { return static_cast<int64_t>(cache_rows_.size()); }
  int64_t capacity() const override { return capacity_; }
  int64_t length(int64_t row) const override;
  void rollback(std::span<const int64_t> lengths) override;
  void select_rows(std::span<const int64_t> rows) override;

  int64_t block() const { return block_; }

  // Returns the layout of the next new_tokens[b] tokens of each row, starting at the length of layer `layer`, without
  // places on the device. Errors: std::logic_error for tokens that are no whole blocks.
  StepLayout layout_of(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer = 0) const;
  // The same, in the memory of a layout.
  void layout_of(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer, StepLayout& layout) const;
  // Returns the same with places.
  StepLayout append(std::span<const int64_t> new_tokens, int64_t tokens, int64_t layer = 0) const;
  // Returns the layout of counts[b] siblings of each row, at most `branches`, all at the next position of layer
  // `layer`. Each sees the prefix and itself.
  StepLayout siblings(std::span<const int64_t> counts, int64_t branches, int64_t layer = 0) const;
  // Keeps sibling chosen[b] of each row in the given layers as the row's next token (its K/V move to the position's own
  // slot) and advances those layers by one; -1 drops all of the row's siblings.
  void select_branch(LayerRange layers, const StepLayout& layout, std::span<const int64_t> chosen);

  // --- for the model that made the state ---
  // Gives the caches of a layer room for a step.
  void make_room(int64_t layer, const StepLayout& layout);
  // Writes a step's K/V [B,L,H*K] of one layer to the layout's slots: of each row's new tokens only.
  void write(int64_t layer, const KeyValue& key_value, const StepLayout& layout);
  // Throws std::logic_error unless the layers stand at the layout's base and have room for it.
  void check(LayerRange layers, const StepLayout& layout) const;
  // Sets the lengths of layers to the end of an append layout; siblings leave them as they are.
  void advance(LayerRange layers, const StepLayout& layout);
  // Returns the layout with its places on the caches' device, copied at once without waiting; as it is on the CPU.
  StepLayout placed(StepLayout layout) const;
  // Returns a layout's places for a device, in one int64 tensor on the host.
  at::Tensor packed_places(const StepLayout& layout) const;
  // Returns where the present rows lie, for device_layout().
  DevicePlaces device_places() const;
  // Returns the layout of a step whose lengths lie on the device: nothing else of it is known here.
  StepLayout device_layout(const DeviceStepInput& input) const;
  // Returns whether begin_again() gives a state of so many rows that holds so many tokens.
  bool fits(int64_t rows, int64_t capacity) const;
  // Makes the state new in the memory that it has: empty rows, none retired.
  void begin_again();
  // Returns whether rows were repeated since the state was made: it has more than it began with.
  bool is_repeated() const;
  // When the state began, as its model counts (ResidentStates).
  uint64_t era() const { return era_; }
  void set_era(uint64_t era) { era_ = era; }
  // Returns the layout with the places that a copy of packed_places() on the device holds.
  StepLayout placed(StepLayout layout, const at::Tensor& packed) const;
  StepGraphs& graphs() { return graphs_; }
  // Returns memory for a step's logits [B,P,V], fp32 on the CPU: that of the step before unless somebody still has it.
  at::Tensor logits_of(at::IntArrayRef shape);

  // Returns the cache row of each row of the batch. [B]
  const std::vector<int64_t>& cache_rows() const { return cache_rows_; }
  const LayerCache& cache(int64_t layer) const { return layers_.at(static_cast<size_t>(layer)); }
  // Sets the sources. On devices their K/V are copied, with some room, into memory that later sources take again.
  void set_cross(std::vector<CrossCache> cross, std::vector<int64_t> source_lengths,
                 std::vector<int64_t> source_of_row);
  const CrossCache& cross(int64_t layer) const { return cross_.at(static_cast<size_t>(layer)); }
  const std::vector<int64_t>& source_of_row() const { return source_of_row_; }
  int64_t source_length(int64_t row) const;

  // Tables over the positions used so far and more; empty before a new state's first step. They lie here and not in the
  // model because weights may change between states: LanguageModel::free_states() ends those that were made before.
  void set_positions(PositionTables tables);
  const PositionTables& positions() const { return positions_; }

 private:
  // Returns where a row lies, without lengths.
  PlacedRow placed_row(size_t b) const;
  // Grows the caches of a layer to at least `slots`; siblings may need more slots than the capacity.
  void reserve(LayerCache& cache, int64_t slots);
  // Returns whether rows may leave without a copy: none is repeated, and kernels find rows wherever they lie.
  bool selects_in_place(std::span<const int64_t> rows) const;
  // Notes that tensors were replaced which recorded work reads.
  void replace_memory();
  void take_cross(std::vector<CrossCache> cross);
  void check_rows(size_t count) const;
  void check_layers(LayerRange layers) const;

  int64_t capacity_;
  int64_t block_;
  int64_t first_rows_;  // that the state was made with
  uint64_t era_ = 0;
  PositionTables positions_;
  std::vector<int64_t> cache_rows_;  // [B]
  std::vector<LayerCache> layers_;
  std::vector<CrossCache> cross_;
  std::vector<int64_t> source_lengths_;  // [R]
  std::vector<int64_t> source_of_row_;   // [B]
  uint64_t memory_;                      // DevicePlaces::memory
  StepGraphs graphs_;
  at::Tensor logits_;
};

// Decode states that nobody needs at present. Their device memory, and the work that was recorded over it, serve later
// batches of the same size: recording takes as long as a short text. Thread-safe.
class ResidentStates {
 public:
  // Keeps a state, and drops the one that was kept longest if there are too many. Drops the state instead if clear()
  // was called since it began, or if it was repeated: no later batch begins with such rows.
  void put(std::unique_ptr<DecoderState> state);
  // Returns a kept state, made new, that has these rows and holds so many tokens, the smallest if there are several;
  // nullptr: there is none.
  std::unique_ptr<DecoderState> take(int64_t rows, int64_t capacity);
  // Marks a new state, which may be kept later.
  void began(DecoderState& state);
  // Drops all states, and those in use once they come back.
  void clear();

 private:
  std::mutex mutex_;
  uint64_t era_ = 0;                                  // number of calls of clear()
  std::deque<std::unique_ptr<DecoderState>> states_;  // the latest first
};

}  // namespace draftsmith::model
