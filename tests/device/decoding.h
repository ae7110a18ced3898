// Decoding of fixed inputs with small models on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/generator.h"
#include "model/transformer/transformer_config.h"
#include "tests/support/token_ids.h"

namespace draftsmith::on_device {

using Ids = std::vector<int64_t>;

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

// Returns the outputs. Endless outputs have no EOS.
std::vector<Ids> decode_on(c10::Device device, const model::TransformerConfig& config,
                           const infer::DecodeOptions& options, c10::ScalarType type, bool endless = false);

}  // namespace draftsmith::on_device
