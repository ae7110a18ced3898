// A trainable model: one model, or several that learn together, with the batches that its pass reads and what it puts
// out. The trainer, its checkpoints and its validations use only this interface.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "data/corpus/corpus.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/exits.h"
#include "model/transformer/language_model.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::train {

// A micro-batch as tensors: the input of a model's forward pass and of an objective.
struct Batch {
  model::TokenBatch source;  // [B,S]; undefined for decoder-only models
  // [B,T]: the decoder start token, then all but the last target token. Decoder-only: the source, if there is one,
  // replaces the start token, and a row may pack several examples.
  model::TokenBatch decoder_input;
  at::Tensor labels;                     // int64 [P]: target tokens of all rows, padding left out, row after row
  at::Tensor positions;                  // int64 [P]: where each label stands in the flattened [B*T]
  std::vector<int64_t> places;           // [P]: the same on the host
  std::vector<int64_t> label_counts;     // labels of each example, in the order of `labels`
  std::vector<int64_t> examples;         // indices in the corpus, in the order of `labels`; empty when made from tokens
  const data::Corpus* corpus = nullptr;  // of the examples
  int64_t label_count() const { return labels.size(0); }
  // Returns the number of each label's example in the batch, on the labels' device: int64 [P].
  at::Tensor sequences() const;
};

// Makes a batch of a corpus's examples on the model's device. Padding positions and prompts never reach the head or the
// loss. `pack_tokens` as in data::BatchOptions.
Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model,
                 int64_t pack_tokens = 0);

struct ExampleTokens {
  std::span<const int32_t> source, target;
};
// Makes a batch of tokens that belong to no corpus.
Batch make_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens = 0);

// The output of trained models that objectives and validations read: hidden states at a batch's labels, and the head
// that makes logits of them. It holds no logits: at all positions together they would be [P,V].
struct Predictions {
  // The model whose head reads `hidden`, or whose ids the rows of `head` are. Without `head`, predictions of any model,
  // a packed one too, have logits(); head_of() needs a model that has parameters().
  const model::TransformerModel* model = nullptr;
  at::Tensor hidden;             // [P,D] what the head reads, with a gradient where the model is trained
  at::Tensor labels;             // int64 [P] token ids
  model::HeadWeights head = {};  // an exit's own head, instead of the model's
  double weight = 1;             // of its loss in the sum of losses
  bool taught = true;            // false: not to be distilled (the primary that is trained beside its secondary)
  int64_t layer = 0;             // the layer that an exit reads, which validations report on its own; 0: no exit
};

// The output of trained models for a batch.
struct TrainableOutput {
  std::vector<Predictions> predictions;  // at least one; validation measures the first, and exits
  // The predictions of a teacher that ran anyway (a Tandem's primary), at the same labels as the first; without
  // gradients. Distilling from it costs no pass.
  std::optional<Predictions> teacher = {};
};

// Returns a batch as a model's input.
model::ForwardInput input_of(const Batch& batch);

// Returns the rows of forward()'s hidden states [B,T,D] at the labels, padding and prompts left out. [P,D]
at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch);

// Returns the decoder output of a model that runs alone, at the labels. [P,D]
at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout);

// The labels that a head has rows for. A pruned vocabulary lacks some: no loss can teach them.
struct HeadLabels {
  at::Tensor rows;  // int64 [Q]: the labels as rows of the head
  at::Tensor kept;  // int64 [Q]: which of the P they are, rising

  // Returns the rows of hidden states [P,D] at these labels; the same tensor if all are kept. [Q,D]
  at::Tensor of(const at::Tensor& hidden) const;
};

// Returns the labels in the head, of labels int64 [P], P >= Q; the same tensor if the head has all ids.
HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& labels);

// Returns the head of predictions: their own, if they have one, otherwise the model's.
model::HeadWeights head_of(const Predictions& predictions);

// Returns logits over all V ids of hidden states [C,D] of these predictions; -inf for ids that a pruned vocabulary
// lacks. [C,V]
at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden);

// Models that write text with the present weights of a trainable model.
struct TextWriters {
  std::shared_ptr<model::TransformerModel> target;
  std::shared_ptr<model::TransformerModel> tandem = nullptr;  // its Tandem secondary, which writes instead
  int64_t block = 0;                                          // γ of such a Tandem
  std::shared_ptr<model::TransformerModel> shared_encoder =
      nullptr;  // a drafter with its encoder, which writes instead

  // Returns whether the target is the model that the trained one drafts for, rather than the trained one itself.
  bool drafts_for_target() const { return tandem != nullptr || shared_encoder != nullptr; }
  // Returns the model that writes without a second one: the target, or the drafter with the target's encoder. This
  // object must outlive it. Not for Tandems.
  std::shared_ptr<model::LanguageModel> alone() const;
};

class TrainableModel {
 public:
  virtual ~TrainableModel() = default;

  // Returns the properties that batches are made for: token ids, device, type, whether sources go to an encoder, and
  // the shortest of the models' contexts.
  virtual const model::ModelInfo& info() const = 0;
  // Returns the probability of dropout in the model's own configuration.
  virtual double dropout() const = 0;
  // Returns all trained parameters by name; a checkpoint holds these and no others.
  virtual const std::map<std::string, at::Tensor>& parameters() const = 0;

  // Runs the models on a batch, with gradients unless they are off. The objective computes the loss.
  virtual TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) = 0;

  // Returns whether a validation measures the means over the first prediction and the exits, not the first one alone.
  virtual bool measures_all() const { return false; }
  // Returns whether forward() returns a teacher.
  virtual bool teaches() const { return false; }

  // Writes a model directory with everything in parameters(). Errors: as model::save_model.
  virtual void save(const std::filesystem::path& directory, const model::SaveOptions& options) const = 0;
  // Writes the run's result, which must decode: like save(), with everything else that decoding needs.
  virtual void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const {
    save(directory, options);
  }
  // Copies the weights of a directory that save() wrote into parameters(), in place. Errors: UserError if they are of
  // another architecture.
  virtual void load(const std::filesystem::path& directory) = 0;

  // Returns whether text_writers() has the model that the trained one drafts for.
  virtual bool has_target() const { return false; }
  // Returns whether text_writers() returns any model, so that there is BLEU.
  virtual bool writes_text() const { return false; }
  virtual TextWriters text_writers() const { return {}; }
};

// Returns `info` with the shorter of its own and another model's context.
model::ModelInfo of_both(model::ModelInfo info, const model::ModelInfo& other);

// Returns the tensors with `prefix` before their names, for parameters of a model beside another's.
std::map<std::string, at::Tensor> with_prefix(const std::string& prefix,
                                              const std::map<std::string, at::Tensor>& parameters);

// Turns gradients of all parameters on or off.
void require_gradients(const TrainableModel& trainable, bool on);

// Copies parameters into others of the same names and shapes, in place. Errors: UserError at `where` that names the
// first one missing or misshapen.
void copy_parameters(const std::map<std::string, at::Tensor>& from, const std::map<std::string, at::Tensor>& into,
                     const std::string& where);

// Returns a packed model over the same weights.
std::unique_ptr<model::TransformerModel> packed_copy(const model::TransformerModel& model);

// Trained models whose parameters are those of one model.
class OneModelTrainable : public TrainableModel {
 public:
  // The model, whose directories are of `kind`, is fp32 (fp64 in tests), unpacked and on the device to train on. It
  // must outlive this object, and holds the result.
  OneModelTrainable(model::TransformerModel& model, const model::ModelKind& kind) : model_(model), kind_(kind) {}

  const model::ModelInfo& info() const override { return model_.info(); }
  double dropout() const override { return model_.config().dropout; }
  const std::map<std::string, at::Tensor>& parameters() const override { return model_.parameters(); }
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 protected:
  model::TransformerModel& model_;

 private:
  const model::ModelKind& kind_;
};

// One model, trained on its own.
class PlainTrainable : public OneModelTrainable {
 public:
  explicit PlainTrainable(model::TransformerModel& model) : OneModelTrainable(model, model::ordinary_kind()) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool writes_text() const override { return true; }
  TextWriters text_writers() const override { return {packed_copy(model_)}; }
};

}  // namespace draftsmith::train
