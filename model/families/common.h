// Parts that the families' readers and writers share: limits, names of activations, and parameters' names by a table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/families/config_reader.h"
#include "model/families/stored_layout.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Limits far beyond any real model: products of any three of them fit int64.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 18;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Activation of a name in config.json; "gelu_new" is the tanh approximation.
std::optional<Activation> activation_named(const std::string& name);
std::string activation_name(Activation activation);
// The activation under `key`, with a problem where it is none that is known here.
Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& fallback);

// Returns a decoder-only configuration with RMS norms and no biases.
TransformerConfig decoder_only(const std::string& family);
// Returns a decoder-only configuration with layer norms and biases in all layers, as GPT-2 and its successors have.
TransformerConfig decoder_only_with_biases(const std::string& family);

// Names that a decoder-only family's files give to parameters.
struct NameTable {
  std::map<std::string, std::string> outside;  // of whole names: "head.weight" -> "lm_head.weight"
  std::string blocks;                          // what stands before a layer's number: "model.layers."
  // Modules of a layer: "self_attention.query" -> "self_attn.q_proj". Joined parameters have one name.
  std::map<std::string, std::string> modules;
  Join join = Join::kNone;  // of query, key and value
  bool transposed = false;  // matrices are stored [in,out]
};
// Where a parameter lies by its family's table. Throws std::logic_error for a name that the table lacks.
StoredTensor stored_by(const NameTable& table, const std::string& parameter);

// Width of a head where the heads make up the model's width; `heads_key` and `width_key` are named when they do not.
int64_t read_split_width(ConfigReader& reader, const TransformerConfig& config, const std::string& heads_key,
                         const std::string& width_key);

// A family's own token ids, for a config.json that says none.
struct UsualIds {
  int64_t bos = 0;
  int64_t eos = 0;
};
// Keys that all decoder-only families share: token ids, dropout left to the family, quantised weights refused.
// `config.vocabulary` is set already.
void read_decoder_only(ConfigReader& reader, TransformerConfig& config, const UsualIds& usual);
// Token ids, tied head and what else every decoder-only config.json says.
void write_decoder_only(const TransformerConfig& config, nlohmann::ordered_json& out);

}  // namespace draftsmith::model
