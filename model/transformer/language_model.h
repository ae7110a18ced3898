// The interface that every decoding rule is written against: encode, begin, step, roll back. Implemented by
// TransformerModel (weights) and, in tests, by a table of next-token distributions.
//
// Letters in shapes: B rows (batch), S source length, L tokens in this step, P wanted logit positions, D width, V
// vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// Properties of a model that decoding needs.
struct ModelInfo {
  std::string name;           // directory or family, for messages
  int64_t vocabulary = 0;     // V: rows of the logits, padding ids included
  int64_t decoder_start = 0;  // first token given to an encoder-decoder's decoder
  int64_t pad = 0;
  std::vector<int64_t> eos;   // any of these ends a row
  int64_t layers = 0;         // decoder layers
  int64_t max_positions = 0;  // 0: no limit of its own
  int64_t window = 0;         // keys that a token sees in layers with windows; 0: there are none
  bool encoder_decoder = true;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// A batch of ragged token rows, right padded.
struct TokenBatch {
  at::Tensor tokens;             // int64 [B,S]
  std::vector<int64_t> lengths;  // [B]; 0 is valid
  // Lengths of the sequences that lie one after the other in each row, for decoder-only forward() passes: positions
  // begin anew with each, and attention does not leave it. Empty: every row is one sequence.
  std::vector<std::vector<int64_t>> segments = {};
};

// Output of the encoder, shared by all samples of one source.
struct EncoderStates {
  at::Tensor hidden;             // [B,S,D]
  std::vector<int64_t> lengths;  // [B]
};

// Positions of a step that get logits; no others are computed.
enum class Logits {
  kNone,
  kLast,  // each row's last new token: P = 1
  kAll,   // every position of the step: P = L; positions beyond a row's new tokens hold garbage
};

// One call of the decoder on L tokens a row. Row b uses its first new_tokens[b] tokens, 0..L.
struct StepInput {
  at::Tensor tokens;                // int64 [B,L]
  std::vector<int64_t> new_tokens;  // [B]
  Logits logits = Logits::kAll;
  std::vector<int64_t> hidden_layers;  // wanted hidden states: 0 embedding output, i output of layer i
};

// One call of the decoder on tokens whose lengths lie on the device. Row b uses its first new_tokens[b] tokens.
struct DeviceStepInput {
  at::Tensor tokens;      // int64 [B,L]
  at::Tensor base;        // int64 [B] tokens of each row before these
  at::Tensor new_tokens;  // int64 [B] 0..L
  at::Tensor rows;        // int64 [3,B] a copy of DevicePlaces::rows
  Logits logits = Logits::kAll;
};

// Where steps on a device find the rows of a state.
struct DevicePlaces {
  at::Tensor rows;  // int64 [3,B] on the host
  uint64_t memory =
      0;  // number of the device memory that they use: work that was recorded over one serves that one only
};

// On devices other than the CPU the tensors are valid until the next step of the same state, which may reuse them.
struct StepOutput {
  at::Tensor logits;               // [B,P,V]; undefined for kNone
  std::vector<at::Tensor> hidden;  // one [B,L,D] for each wanted layer
};

// The state of a decoder between steps. It is explicit, never hidden in the model, which may have many at once.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  virtual int64_t rows() const = 0;
  // Returns how many tokens a row can hold.
  virtual int64_t capacity() const = 0;
  // Returns how many tokens of a row every layer has processed.
  virtual int64_t length(int64_t row) const = 0;
  // Drops the tokens of each row from lengths[row] on (a length above the row's own changes nothing). Copies nothing.
  virtual void rollback(std::span<const int64_t> lengths) = 0;
  // Keeps only the given rows, in the given order (finished rows leave a batch).
  virtual void select_rows(std::span<const int64_t> rows) = 0;
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual const ModelInfo& info() const = 0;

  // Runs the encoder. Errors: std::logic_error for decoder-only models, as the next.
  virtual EncoderStates encode(const TokenBatch& /*source*/) {
    throw std::logic_error("a decoder-only model has no encoder");
  }

  // Returns a new state of an encoder-decoder: `samples` rows for each source, in order, sharing one cross-attention
  // K/V for each source. On devices a row may hold more tokens than `capacity`.
  virtual std::unique_ptr<DecodeState> begin(const EncoderStates& /*source*/, int64_t /*capacity*/,
                                             int64_t /*samples*/ = 1) {
    throw std::logic_error("a decoder-only model doesn't begin from encoder states");
  }
  // Returns a new state of a decoder-only model: `rows` empty rows.
  virtual std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) = 0;

  // Processes the new tokens of every row at the row's own positions and advances its length in all layers.
  // Throws std::logic_error when a row would pass its capacity.
  virtual StepOutput step(const StepInput& input, DecodeState& state) = 0;

  // Takes a state that is no longer needed. On devices its memory serves later ones of the same size, with the work
  // that was recorded over it, unless rows were repeated. A null pointer is no state.
  virtual void give_back(std::unique_ptr<DecodeState> /*state*/) {}
  // Frees the memory of such states, which other work on the device may need. States in use are not kept later. Call it
  // too where weights change in place: states have tables that were made from them.
  virtual void free_states() {}

  // --- steps that the host does not follow ---
  // Prepares step_on_device() for the state's present rows. Returns nothing if there is none: on CPUs, and in models
  // that are no transformers.
  virtual std::optional<DevicePlaces> device_places(DecodeState& /*state*/) { return std::nullopt; }
  // Does as step() does, but takes lengths from the device and leaves those of the state as they are. It can be
  // recorded (base/device_graph.h). The caller keeps rows within the capacity.
  virtual StepOutput step_on_device(const DeviceStepInput& /*input*/, DecodeState& /*state*/) {
    throw std::logic_error("this model takes no steps whose lengths lie on the device");
  }
};

// Frees a model's states (LanguageModel::free_states) at its end, whatever happened: for decoding in between other work
// on the device. It must outlive the generators that decode with the model.
class StatesFreed {
 public:
  explicit StatesFreed(LanguageModel& model) : model_(model) {}
  ~StatesFreed() { model_.free_states(); }
  StatesFreed(const StatesFreed&) = delete;
  StatesFreed& operator=(const StatesFreed&) = delete;

 private:
  LanguageModel& model_;
};

}  // namespace draftsmith::model
