// A transformer with weights: encoder-decoder or decoder-only, any family. One block code serves training (forward,
// with gradients) and decoding (step, over caches).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/aten.h"
#include "model/layers/dropout.h"
#include "model/layers/parameter_source.h"
#include "model/layers/step_operators.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/language_model.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

struct StackInput;        // model/transformer/transformer_parts.h
struct TransformerParts;  // likewise

// ---- Passes over whole sequences (training and scoring)

// The states of a primary that a Tandem secondary reads, from the primary's pass over the same tokens. Gradients flow
// into tensors that require them. After the primary's forward() with hidden_layers = the secondary's layer_map, they
// are {output.layers, output.encoder}.
struct PrimaryStates {
  std::vector<at::Tensor> layers = {};  // [B,T,D_L], x^(ℓ(j)) for each layer j of the secondary
  at::Tensor encoder = {};              // [B,S,D_L], the primary's encoder states; undefined for decoder-only models
};

// Whole sequences for training or scoring with teacher forcing.
struct ForwardInput {
  TokenBatch source;                   // [B,S]; unused by decoder-only models
  TokenBatch target;                   // decoder inputs [B,T] (start token first), right padded
  std::vector<int64_t> hidden_layers;  // wanted decoder hidden states (early exits, heads)
  // For a Tandem secondary: layer j + 1 reads the primary's projected representations of tokens before the block of γ
  // tokens that a position lies in (counted within its segment), and its own from there on. An encoder-decoder
  // secondary reads the primary's encoder states and only the lengths of `source`. Without a primary a decoder-only
  // secondary reads only itself, as with a γ beyond every token.
  const PrimaryStates* primary = nullptr;
  // For a model that shares another one's encoder (model/models/shared_encoder.h): the other model's encoder states
  // [B,S,D_L], of which `source` gives the lengths alone.
  at::Tensor shared_encoder = {};
  int64_t block = 0;      // γ of this pass; 0: config.tandem.block
  at::Tensor added = {};  // [B,T,D] added to the embedded targets (Deep Tandem's sketch); undefined: nothing
};

struct ForwardOutput {
  at::Tensor hidden;               // [B,T,D] after the final norm, if any, and output scale: what the head reads
  std::vector<at::Tensor> layers;  // one [B,T,D] a wanted layer, before the final norm
  at::Tensor encoder;              // [B,S,D] encoder states that were cross-attended to; undefined: decoder-only
};

// In place of a token that is not known yet: its embedding and state are a features drafter's feature_mask.
constexpr int64_t kMaskToken = -1;

// Whole sequences for a features drafter, with its target's states of the same tokens.
struct FeatureInput {
  TokenBatch target = {};                    // as in ForwardInput
  std::vector<at::Tensor> layers = {};       // [B,T,D] each, of config.features.layers
  at::Tensor encoder = {};                   // [B,S,D] the target's encoder states; undefined: decoder-only
  std::vector<int64_t> source_lengths = {};  // [B]
  int64_t steps = 1;                         // that are unrolled
  at::Tensor read = {};                      // int64 [N] places of [B*T], as of Block::after_seen; undefined: all
};

class TransformerModel : public LanguageModel {
 public:
  // Makes random weights by the family's own initialisation (config.initializer_* and `seed`).
  TransformerModel(TransformerConfig config, uint64_t seed);
  // Takes parameters under their canonical names (model/transformer/parameters.h). Most callers want load_model()
  // (model/files/model_directory.h), which reads a Hugging Face directory and maps its names. All tensors must have one
  // dtype and device, except those that keeps_fp32_in_half() names. Throws UserError naming the tensors that are
  // missing, unknown or misshapen.
  TransformerModel(TransformerConfig config, std::map<std::string, at::Tensor> parameters);
  // Builds a model for decoding only, in the least memory: blocks are packed as the source's parameters come, and no
  // plain weight is kept that has a packed form. parameters(), to(), requires_grad() and pack() throw
  // std::logic_error, and so does a pass that would record gradients through packed weights. load_model() makes such
  // models by default.
  TransformerModel(TransformerConfig config, ParameterSource& source);
  ~TransformerModel() override;

  const TransformerConfig& config() const { return config_; }
  const ModelInfo& info() const override { return info_; }
  // Sets info().name, which messages use: the family until load_model() sets the directory.
  void set_name(std::string name) { info_.name = std::move(name); }

  // Returns whether the model was made for decoding only, so that it has no parameters().
  bool decoding_only() const { return decoding_only_; }

  // Returns the rows of tokens in the embedding and the head.
  const VocabularyRows& vocabulary_rows() const;

  // Returns the parameters under their canonical names (model/transformer/parameters.h), sorted. Tied tensors appear
  // once. Checkpoint code maps the names to the family's own.
  const std::map<std::string, at::Tensor>& parameters() const;
  // Moves and converts all parameters. Invalidates states. T5's `wo` stays fp32 in fp16.
  void to(at::Device device, at::ScalarType dtype);
  // All but constants (is_constant()).
  void requires_grad(bool on);
  // Packs weights for decoding (fused QKV, prepacked linears) beside the parameters, which must not change afterwards.
  // Undone by to(). Invalidates states: recorded steps read the weights as they were.
  void pack();

  ForwardOutput forward(const ForwardInput& input, const DropoutContext& dropout = {});
  // Returns the logits of hidden states that forward() returned: [..., D] -> [..., V].
  at::Tensor head(const at::Tensor& hidden) const;
  // Do the two halves of it: products with the rows that the head has, [..., D] -> [..., rows], and what follows, a cap
  // and the place of each row. [..., rows] -> [..., V]
  at::Tensor head_rows(const at::Tensor& hidden) const;
  at::Tensor logits_of(const at::Tensor& rows) const;
  // Returns the bias [rows] that head() adds, a constant; undefined: none.
  const at::Tensor& head_bias() const;
  // Applies the final norm, if any, and output scale to a layer's raw hidden state: the input of the head. [..., D] ->
  // [..., D].
  at::Tensor finish(const at::Tensor& layer_hidden) const;
  // Applies finish() and head() (early exit, CALM). [..., D] -> [..., V].
  at::Tensor exit_head(const at::Tensor& layer_hidden) const { return head(finish(layer_hidden)); }

  // Returns rows of the embedding table alone, without positions or norm, of models loaded in any way: tokens int64
  // [...] -> fp32 [...,D]. Routers read them (model/models/router.h).
  at::Tensor token_embeddings(const at::Tensor& tokens) const;

  EncoderStates encode(const TokenBatch& source) override;
  std::unique_ptr<DecodeState> begin(const EncoderStates& source, int64_t capacity, int64_t samples = 1) override;
  std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) override;
  StepOutput step(const StepInput& input, DecodeState& state) override;
  void give_back(std::unique_ptr<DecodeState> state) override;
  void free_states() override { states_.clear(); }
  std::optional<DevicePlaces> device_places(DecodeState& state) override;
  StepOutput step_on_device(const DeviceStepInput& input, DecodeState& state) override;

  // --- the two smaller verbs beneath step() ---
  // Embeds tokens [B,L] for the layout's positions: hidden state 0. [B,L,D]
  at::Tensor embed(const at::Tensor& tokens, const StepLayout& layout) const;
  // Runs decoder layers [begin,end) on hidden [B,L,D] at the layout's slots, writes their K/V and advances those
  // layers' lengths (not for sibling layouts). Returns the hidden state after layer end; early exit and PPD continue
  // from it.
  at::Tensor run_layers(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout, DecoderState& state);
  // Does the work of embed() if tokens are given, of run_layers(), and of exit_head() if logits are wanted. On CPUs
  // that is one program.
  StepOutput run_part(const StepPart& part, const StepLayout& layout, DecoderState& state);
  // Writes K/V of layers from another hidden state [B,L,D], as if it were those layers' input, and advances their
  // lengths (Tandem refresh, CALM propagation). Runs no attention.
  void write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout, DecoderState& state);

  // --- for encoder-decoders without an encoder: Tandem secondaries, drafters that share their target's encoder ---
  // Returns another model's encoder states, of any type, as this model's own, which begin() takes. [B,S,D_L] ->
  // [B,S,D]. std::logic_error for other models.
  EncoderStates project_encoder(const EncoderStates& other);

  // --- a features drafter's (std::logic_error for other models) ---
  // Takes the target's embedding and, without an own one, its head, which all passes need: handles, no copies. Call it
  // after to().
  void borrow(const TransformerModel& target);
  // Returns the target's states of tokens, one [B,L,D] for each of config.features.layers, as inputs of this model.
  // [B,L,D]
  at::Tensor project_features(const std::vector<at::Tensor>& layers) const;
  // Returns what the head reads, [B,T,D] for each step: in the first each token's state is the projected one of the
  // token before it, in later ones this model's own output there in the step before; in block mode later steps read
  // masks. A token of step k sees the keys that it would see as the k-th of a draft.
  std::vector<at::Tensor> forward_features(const FeatureInput& input, const DropoutContext& dropout = {});
  // In block mode: returns the state [D] of a masked token.
  at::Tensor mask_state() const;
  // With a Markov bias: returns what its second factor multiplies, for the tokens before, int64 [...] -> [...,r]; and
  // the bias itself, which is added to head_rows(), [...] -> [...,rows].
  at::Tensor markov_input(const at::Tensor& previous) const;
  at::Tensor markov_rows(const at::Tensor& previous) const;

  // --- a Tandem secondary's (std::logic_error for other models) ---
  // Writes each layer's K/V of tokens that the primary has processed, from its projected representations ([B,L,D_L],
  // x^(ℓ(j)) for each layer j), at the layout's slots, and advances all layers. Runs no attention. K/V that the
  // secondary had written there must be rolled back before.
  void write_primary(const std::vector<at::Tensor>& representations, const StepLayout& layout, DecoderState& state);

 private:
  // Makes the parts anew, which hold handles of the parameters, when those are replaced.
  void rebuild();
  void require_parameters() const;
  // Returns the state as a transformer's. Throws std::logic_error for one of another kind of model.
  static DecoderState& own_state(DecodeState& state);
  // Returns an empty state, in the memory of an earlier one if one fits.
  std::unique_ptr<DecoderState> new_state(int64_t rows, int64_t capacity);
  // Replays a step's work, which the first call records.
  StepOutput run_recorded(StepGraph& graph, const StepPart& part, const StepLayout& layout, DecoderState& state) const;

  // --- passes over the parts ---
  at::Tensor embed_at(const at::Tensor& tokens, const StackInput& input,
                      const std::function<at::Tensor()>& positions) const;
  at::Tensor embed_sequences(const TokenBatch& batch, const StackInput& input) const;
  // Returns the encoder states of whole sequences. [B,S,D]
  at::Tensor encode_states(const TokenBatch& source, Dropout& dropout) const;
  // Returns another model's encoder states [B,S,D_L] as this one's own [B,S,D].
  at::Tensor project(const at::Tensor& states) const;
  // Returns the states that a forward pass cross-attends to; undefined for decoder-only models.
  at::Tensor memory(const ForwardInput& input, Dropout& dropout) const;
  // Returns K/V of encoder states for all decoder layers.
  std::vector<CrossCache> cross_caches(const at::Tensor& memory) const;
  // Checks a step, and makes the state's tables of positions long enough for it. Like the caches they double, so that a
  // high limit costs no memory.
  void prepare(LayerRange layers, const StepLayout& layout, DecoderState& state) const;
  // Returns the positions of a step's tokens [B*L] if queries and keys are rotated by them, otherwise nothing.
  std::vector<int64_t> rotary_positions(const StepLayout& layout) const;
  // Does the work of a step, or of a part of one, that has been prepared; it may be recorded on the device.
  // DecoderState::advance() is to follow.
  StepOutput run(const StepPart& part, const StepLayout& layout, DecoderState& state) const;
  StepOutput run_by_operators(const StepPart& part, const StepLayout& layout, DecoderState& state) const;
  // Returns whether steps are computed by run_on_cpu(): all layers are packed for it.
  bool takes_cpu_steps() const;
  StepOutput run_on_cpu(const StepPart& part, const StepLayout& layout, DecoderState& state) const;
  // Writes hidden state 0 of a step's tokens: [B*L,D].
  void embed_on_cpu(const at::Tensor& tokens, const StepLayout& layout, float* to) const;

  // --- a features drafter's (feature_passes.cpp) ---
  // Returns what the first layer projects: embedded tokens and states, each normed. [B,L,D] both -> [B,L,2*D]
  at::Tensor join(const at::Tensor& embedded, const at::Tensor& states) const;
  // Does so in a step, in memory of the calling thread. states [B*L,D] -> [B*L,2*D]
  const float* join_on_cpu(const at::Tensor& tokens, const StepLayout& layout, const float* states) const;

  TransformerConfig config_;
  std::map<std::string, at::Tensor> parameters_;
  bool decoding_only_ = false;
  ModelInfo info_;
  std::unique_ptr<TransformerParts> parts_;
  ResidentStates states_;
};

}  // namespace draftsmith::model
