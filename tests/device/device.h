// The device that tests/device runs its suites on, and the models, inputs and corpora that they share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "infer/generator.h"
#include "model/transformer/transformer_config.h"
#include "tests/standin/standin.h"
#include "tests/support/token_ids.h"

namespace draftsmith::on_device {

using Ids = std::vector<int64_t>;

// Returns the device that DRAFTSMITH_TEST_DEVICE names: standin (the default: tests/standin/standin.h), cpu, or a
// device of --device, as cuda. Throws UserError for other words, and for a GPU that is not there.
c10::Device test_device();

// Returns whether that is the stand-in accelerator, which counts what the host asks of it.
bool on_standin();

// Lets work on the device be recorded as graphs, as it is at first, or not.
void record_graphs(bool on);

// Returns inputs of 1 to 40 tokens: the longest is processed as a prompt is.
std::vector<Ids> device_sources();

// Returns options of up to 12 new tokens.
infer::DecodeOptions device_options(const std::string& method, double temperature, int64_t batch);

// Decoding of `sources` with a target and a drafter of a family.
struct Decoding {
  model::TransformerConfig config;
  infer::DecodeOptions options;
  c10::ScalarType type = at::kDouble;
  bool endless = false;                        // outputs have no EOS
  const data::Tokenizer* tokenizer = nullptr;  // of both models
  int64_t drafter_vocabulary = 0;              // 0: the target's
  int64_t drafter_positions = 0;               // 0: the target's
  int64_t broken_token = -1;                   // its embedding is NaN; -1: none
  bool breaks_drafter = false;                 // the drafter's, not the target's
  std::vector<Ids> sources = device_sources();
};

// Models of a decoding on a device.
struct DecodingModels {
  std::unique_ptr<model::TransformerModel> target;
  std::unique_ptr<model::TransformerModel> drafter;
  infer::GenerationModels models;  // refers to both
};

DecodingModels models_on(c10::Device device, const Decoding& decoding);
std::vector<infer::GenerationResult> results_on(c10::Device device, const Decoding& decoding);

// Returns the outputs, none of which may fail.
std::vector<Ids> decode_on(c10::Device device, const Decoding& decoding);

// Writes a corpus that every family can be trained on: prompts and continuations of one length, or of several.
void write_training_corpus(const std::filesystem::path& file, int32_t examples, bool ragged);

// Returns a model of that corpus's vocabulary on a device that is ready to be trained.
std::unique_ptr<model::TransformerModel> trainee(model::TransformerConfig config, at::Device device,
                                                 at::ScalarType type);

}  // namespace draftsmith::on_device
