// Shared parts of the families: keys of config.json that are read and written by one list, rotary keys, the layout of
// stored parameters, limits, names of activations, and parameters' names by a table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
  // Returns a number in [least, most]; the fallback if absent or null.
  double number(const std::string& key, double fallback, double least, double most);
  // Records a problem with the value of a key.
  void wrong(const std::string& key, const std::string& what, const std::string& expected);
  const std::string& where() const { return where_; }
  Problems& problems() { return problems_; }

 private:
  const nlohmann::json& object_;
  std::string where_;
  Problems& problems_;
};

// The keys of a JSON object, read into fields or written from them: one list of keys serves both ways. Values are
// checked when they are read; an absent one becomes its fallback, without which it is a problem or leaves the field as
// it is.
class ConfigKeys {
 public:
  explicit ConfigKeys(const ConfigReader& from) : from_(from) {}
  // Writes to an object that must outlive this one: all values, or only those that are not their fallbacks.
  ConfigKeys(nlohmann::ordered_json& to, bool all) : to_(&to), all_(all) {}

  bool reads() const { return from_.has_value(); }
  // Returns the reader. Throws std::bad_optional_access where keys are written.
  ConfigReader& reader() { return from_.value(); }
  // Returns whether a key is there to be read.
  bool has(const std::string& key) const { return reads() && from_->has(key); }
  // Returns the keys that were listed so far.
  const std::set<std::string>& listed() const { return listed_; }

  void integer(const std::string& key, int64_t& value, IntRange range, std::optional<int64_t> fallback = std::nullopt);
  void integer(const std::string& key, std::optional<int64_t>& value, IntRange range);
  void number(const std::string& key, double& value, double fallback, double least, double most);
  void number(const std::string& key, std::optional<double>& value, double least, double most);
  void flag(const std::string& key, bool& value, bool fallback);
  void text(const std::string& key, std::string& value, const std::string& fallback);
  // One integer or a list of them. Absent: the field stays.
  void integers(const std::string& key, std::vector<int64_t>& value, IntRange range = {});
  // A single id is written as a number, as Transformers does.
  void end_ids(const std::string& key, std::vector<int64_t>& value, IntRange range = {});
  // The name of an activation.
  void activation(const std::string& key, Activation& value, const std::string& fallback);
  // A flag that has one supported value.
  void fixed(const std::string& key, bool value);
  // A value that the caller reads in its own way. Returns whether it is there to be read. Null and empty lists are
  // fallbacks.
  bool custom(const std::string& key, const nlohmann::ordered_json& value);
  // Writes what is not read.
  void also(const std::string& key, const nlohmann::ordered_json& value);
  // Returns the keys of an object inside this one; nothing, with a problem, if there is none to read.
  std::optional<ConfigKeys> within(const std::string& key);

 private:
  // Notes a key, and writes its value unless keys are read or it is the fallback. Returns whether keys are read.
  bool read_or_write(const std::string& key, const nlohmann::ordered_json& value,
                     const nlohmann::ordered_json& fallback);

  std::optional<ConfigReader> from_;
  nlohmann::ordered_json* to_ = nullptr;
  bool all_ = true;
  std::set<std::string> listed_;
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

// Returns a decoder-only configuration with RMS norms and no biases.
TransformerConfig decoder_only(const std::string& family);
// Returns a decoder-only configuration with layer norms and biases in all layers, as GPT-2 and its successors have.
TransformerConfig decoder_only_with_biases(const std::string& family);

// Names that a family's files give to parameters.
struct NameTable {
  std::map<std::string, std::string> outside;  // of whole names: "head.weight" -> "lm_head.weight"
  std::map<std::string, std::string> blocks;   // what stands before a layer's number: "decoder" -> "model.layers."
  // Modules of a layer: "self_attention.query" -> "self_attn.q_proj", or of one stack's: "decoder.feed_forward.up".
  // Joined parameters have one name.
  std::map<std::string, std::string> modules;
  Join join = Join::kNone;  // of query, key and value
  bool transposed = false;  // matrices are stored [in,out]
};

// Reads the width of a head that divides the model's width; problems name `heads_key`.
void read_split_width(ConfigKeys& keys, TransformerConfig& config, const std::string& heads_key);

// A decoder-only family's own values, for a config.json without any.
struct DecoderOnlyDefaults {
  int64_t vocabulary = 0;
  bool tied_head = false;
  int64_t bos = 0;
  int64_t eos = 0;
};
// Lists the keys that all decoder-only families share: the vocabulary, token ids, the tied head. The head's width must
// be set: it gives the scale of attention.
void decoder_only_keys(ConfigKeys& keys, TransformerConfig& config, const DecoderOnlyDefaults& defaults);

}  // namespace draftsmith::model
