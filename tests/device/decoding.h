// Decoding of fixed inputs with small models on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/decode_options.h"
#include "model/transformer/transformer_config.h"
#include "tests/support/token_ids.h"

namespace draftsmith::on_device {

using Ids = std::vector<int64_t>;

// Returns inputs of 1 to 40 tokens: the longest is processed as a prompt is.
std::vector<Ids> device_sources();

// Returns options of up to 12 new tokens.
infer::DecodeOptions device_options(const std::string& method, double temperature, int64_t batch);

// Decodes device_sources() with a target and a drafter of the family. Endless outputs have no EOS.
std::vector<Ids> decode_on(c10::Device device, const model::TransformerConfig& config,
                           const infer::DecodeOptions& options, c10::ScalarType type, bool endless = false);

}  // namespace draftsmith::on_device
