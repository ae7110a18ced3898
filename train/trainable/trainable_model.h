// A trainable model: one model, or several that learn together. The trainer, its checkpoints and its validations use
// only this interface.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "model/files/checkpoint.h"
#include "train/trainable/predictions.h"

namespace draftsmith::train {

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

  // Returns whether text_writers() has a model that writes alone, so that there are samples.
  virtual bool decodes() const { return false; }
  // Returns whether text_writers() has the model that the trained one drafts for.
  virtual bool has_target() const { return false; }
  // Returns a model that decodes alone with the present weights; nullptr: there is none.
  virtual std::unique_ptr<model::TransformerModel> decoding_copy() const { return nullptr; }
  // Returns whether text_writers() returns any model, so that there is BLEU.
  virtual bool writes_text() const { return false; }
  virtual TextWriters text_writers() const { return {decoding_copy()}; }
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

// One model, trained on its own.
class PlainTrainable : public TrainableModel {
 public:
  // The model is fp32 (fp64 in tests), unpacked and on the device to train on. It must outlive this object, and holds
  // the result.
  explicit PlainTrainable(model::TransformerModel& model) : model_(model) {}

  const model::ModelInfo& info() const override { return model_.info(); }
  double dropout() const override { return model_.config().dropout; }
  const std::map<std::string, at::Tensor>& parameters() const override { return model_.parameters(); }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;
  bool decodes() const override { return true; }
  std::unique_ptr<model::TransformerModel> decoding_copy() const override { return packed_copy(model_); }
  bool writes_text() const override { return true; }

 private:
  model::TransformerModel& model_;
};

}  // namespace draftsmith::train
