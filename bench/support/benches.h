// What benches share: shapes of known models, models with random weights, and records of measured numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "base/device_kernels.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::bench {

// Returns the configuration of a shape: t5-small, t5-base, t5-large, llama-1b, llama-8b, marian, bart-base,
// qwen3-0.6b, or one of the tiny shapes tiny-t5, tiny-t5-drafter, tiny-llama. Its outputs never end. Throws UserError
// for other names.
model::TransformerConfig shape_config(const std::string& name);

// Normal random numbers on a device, the same on each and in every process. They repeat a block of a million numbers,
// which has a prime length: so no two rows of a matrix are equal.
class RandomNumbers {
 public:
  explicit RandomNumbers(at::Device device);

  // Returns numbers of mean 0 for a name, which decides where they begin in the block.
  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation, at::ScalarType type) const;

 private:
  at::Tensor block_;  // fp32
};

// Returns a model for decoding only, as load_model() would make it of a directory. Weights follow the family's own
// initialisation, by RandomNumbers and their names.
std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type);

// Returns a model in fp32 whose parameters take gradients, with the same weights.
std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device);

// Measured numbers of a bench: printed at once, and kept in a JSON file that is complete after each of them.
class Records {
 public:
  // `file`: rewritten after each record; empty: none. `common`: keys that every record begins with.
  Records(std::filesystem::path file, nlohmann::ordered_json common);

  // Gives all records that follow another key.
  void keep(const std::string& key, const std::string& value) { common_[key] = value; }

  // Adds a record {"measure": measure, ...common, ...values}, prints it as one line, and rewrites the file. It ends
  // with what ran since the last one (execution_json()); its warnings are those of the process so far.
  void add(const std::string& measure, const nlohmann::ordered_json& values);

  // Does the work of a setting and returns what it returns. An error becomes the record "problem", and false.
  bool guard(const std::string& setting, const std::function<bool()>& work);

 private:
  std::filesystem::path file_;
  nlohmann::ordered_json common_;
  nlohmann::ordered_json all_ = nlohmann::ordered_json::array();
  DeviceExecution before_ = device_execution();  // at the last record
};

}  // namespace draftsmith::bench
