// Parts that the families' readers and writers share: checked values of config.json, rotary keys, the layout of stored
// parameters, limits, names of activations, and parameters' names by a table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/aten.h"
#include "base/json.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Values of config.json and generation_config.json with their ranges checked: base's JsonReader with additions for
// model directories.
class ConfigReader : public JsonReader {
 public:
  // `object` and `problems` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where, Problems& problems);

  // Returns a reader of an object inside this one; its problems go to the same list.
  ConfigReader within(const nlohmann::json& object) const { return {object, where_, problems_}; }
  // Returns the value of a key that has() found.
  const nlohmann::json& at(const std::string& key) const { return object_.at(key); }
  std::optional<int64_t> optional_int(const std::string& key, IntRange range);
  // Returns a number in [least, most]; the fallback if absent or null.
  double number(const std::string& key, double fallback, double least, double most);
  // Records a problem with the value of a key.
  void wrong(const std::string& key, const std::string& what, const std::string& expected);

 private:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;
};

// ---- Keys of rotary positions in config.json
// In Transformers 5's form (rope_parameters) and the older ones (rope_theta, rope_scaling).

// Reads rotary positions. `base_key` is the key of the base in older files (rope_theta, rotary_emb_base). Problems:
// unsupported scalings.
RotaryConfig read_rotary(ConfigReader& reader, const std::string& base_key, int64_t width);
// Returns the object under rope_parameters.
nlohmann::ordered_json rotary_json(const RotaryConfig& config);

// ---- Layout of stored parameters
// Transposed, or joined with others into one tensor.

// The way in which several parameters of equal shape share one stored tensor, along their outputs.
enum class Join {
  kNone,
  kBlocks,  // one after the other (GPT-2's c_attn)
  kHeads,   // head by head: the first head of each, then the second of each (GPT-NeoX's and BLOOM's query_key_value)
};

// The place of a parameter in the files.
struct StoredTensor {
  std::string name;
  bool transposed = false;  // matrices are stored [in,out] (GPT-2's Conv1D)
  Join join = Join::kNone;
  int64_t part = 0;   // which of the joined ones
  int64_t parts = 1;  // how many are joined
};

// Returns the shape in the file of a parameter of shape `shape`.
std::vector<int64_t> stored_shape(const std::vector<int64_t>& shape, const StoredTensor& stored);

// Returns the parameter in a stored tensor, a view if possible. `heads` is read for Join::kHeads.
at::Tensor take_parameter(const at::Tensor& stored, const StoredTensor& where, int64_t heads);

// Returns the stored tensor of its parameters, in the order of their parts.
at::Tensor join_parameters(const std::vector<at::Tensor>& parameters, const StoredTensor& where, int64_t heads);

// ---- Limits, activations and tables of names

// Limits far beyond any real model: products of any three of them fit int64.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 18;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Returns the activation of a name in config.json; "gelu_new" is the tanh approximation.
std::optional<Activation> activation_named(const std::string& name);
std::string activation_name(Activation activation);
// Reads the activation under `key`, with a problem if it is not known here.
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
// Returns the place of a parameter by its family's table. Throws std::logic_error for a name that is not in the table.
StoredTensor stored_by(const NameTable& table, const std::string& parameter);

// Reads the width of a head that divides the model's width; problems name `heads_key` and `width_key`.
int64_t read_split_width(ConfigReader& reader, const TransformerConfig& config, const std::string& heads_key,
                         const std::string& width_key);

// A family's own token ids, for a config.json without any.
struct UsualIds {
  int64_t bos = 0;
  int64_t eos = 0;
};
// Reads the keys that all decoder-only families share: token ids, and quantised weights, which are refused.
// `config.vocabulary` must be set.
void read_decoder_only(ConfigReader& reader, TransformerConfig& config, const UsualIds& usual);
// Writes token ids, the tied head and the other keys that every decoder-only config.json has.
void write_decoder_only(const TransformerConfig& config, nlohmann::ordered_json& out);

}  // namespace draftsmith::model
