// What a training run trains: a model, or several that learn together. The trainer, its checkpoints and its validations
// know nothing else of it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "model/files/checkpoint.h"
#include "train/trainable/predictions.h"

namespace draftsmith::train {

// Models that write text with a trainable's weights as they are at the moment.
struct TextWriters {
  std::shared_ptr<model::TransformerModel> target;
  std::shared_ptr<model::TransformerModel> tandem = nullptr;  // its Tandem secondary, which writes in its stead
  int64_t block = 0;                                          // γ of such a Tandem
};

class TrainableModel {
 public:
  virtual ~TrainableModel() = default;

  // What batches are made for: token ids, device, type, whether sources go to an encoder, and the shortest of its
  // models' contexts.
  virtual const model::ModelInfo& info() const = 0;
  // Probability of dropout in its own configuration.
  virtual double dropout() const = 0;
  // All that is trained, by name; a checkpoint holds these and no others.
  virtual const std::map<std::string, at::Tensor>& parameters() const = 0;

  // Runs the models on a batch, with gradients unless they are off; the loss is the objective's.
  virtual TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) = 0;

  // Whether a validation's measures are the means over the first prediction and the exits, rather than the first one's.
  virtual bool measures_all() const { return false; }
  // Whether forward() gives a teacher.
  virtual bool teaches() const { return false; }

  // Writes a model directory with everything in parameters(). Errors: as model::save_model.
  virtual void save(const std::filesystem::path& directory, const model::SaveOptions& options) const = 0;
  // The same for the run's result, which must decode: where that takes more than what is trained, it is added.
  virtual void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const {
    save(directory, options);
  }
  // Copies the weights of a directory that save() wrote into parameters(), in place. Errors: UserError when they are of
  // another architecture.
  virtual void load(const std::filesystem::path& directory) = 0;

  // Whether there is a decoding_copy().
  virtual bool decodes() const { return false; }
  // A model that decodes alone with the weights as they are now; nullptr: there is none.
  virtual std::unique_ptr<model::TransformerModel> decoding_copy() const { return nullptr; }
  // Whether text_writers() has any: whether there is BLEU.
  virtual bool writes_text() const { return false; }
  virtual TextWriters text_writers() const { return {decoding_copy()}; }
};

// `info` with the shorter of its own and another model's context.
model::ModelInfo of_both(model::ModelInfo info, const model::ModelInfo& other);

// The same tensors with `prefix` before their names: parameters of a model beside another's.
std::map<std::string, at::Tensor> with_prefix(const std::string& prefix,
                                              const std::map<std::string, at::Tensor>& parameters);

// Turns gradients of all parameters on or off.
void require_gradients(const TrainableModel& trainable, bool on);

// Copies parameters of the same names and shapes into others, in place. Errors: UserError at `where` that names the
// first one missing or misshapen.
void copy_parameters(const std::map<std::string, at::Tensor>& from, const std::map<std::string, at::Tensor>& into,
                     const std::string& where);

// A model over the same weights, but packed, and with nothing remembered from before they changed.
std::unique_ptr<model::TransformerModel> packed_copy(const model::TransformerModel& model);

// One model, trained on its own.
class PlainTrainable : public TrainableModel {
 public:
  // fp32 (fp64 in tests) and unpacked, on the device to train on; must outlive the trainable, and holds the result.
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
