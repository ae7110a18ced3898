// The subjects of a train stage: the models that it starts from or makes, those that stay frozen beside them, and the
// trainable model over them all.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/transformer/transformer_model.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::recipes {

// A trainable model, and the models that it works on.
struct TrainableModels {
  std::vector<std::unique_ptr<model::TransformerModel>> models = {};
  std::unique_ptr<model::DeepTandemModel> deep = nullptr;
  std::unique_ptr<model::Exits> exits = nullptr;
  std::unique_ptr<train::TrainableModel> trainable = nullptr;
};

// The start of a model that is trained with another one.
struct Beginning {
  std::filesystem::path from = {};                           // directory of a model; empty: `fresh`
  std::unique_ptr<model::TransformerModel> fresh = nullptr;  // an ordinary model of random weights
};

// Loads the ordinary model that training begins from, unpacked, or takes the fresh one, which messages call `name`.
std::unique_ptr<model::TransformerModel> ordinary_beginning(Beginning& beginning, const std::string& name,
                                                            at::Device device);

// Loading of models: a frozen one runs in its own type, since it is not updated.
struct ModelPlace {
  at::Device device = at::kCPU;
  at::ScalarType frozen = at::kFloat;
};
// Returns bf16 if training computes in bf16 and the device multiplies bf16 fast; else fp32.
at::ScalarType frozen_type(const std::string& precision, at::Device device);
// Loads a model that is not trained, named by its directory.
std::unique_ptr<model::TransformerModel> load_frozen(const std::filesystem::path& directory, const ModelPlace& place);

// Returns whether two directories hold the same model. Errors: as model::model_hash.
bool is_same_model(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace draftsmith::recipes
