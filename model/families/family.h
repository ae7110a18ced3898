// Families: how config.json becomes a TransformerConfig and back, what the weights are called, and what new models are
// like. All other code is the same for all families. A new family is a .cpp in this folder, the declaration of its
// function below, and its line in family.cpp; one like Llama or BART is a row in llama.cpp or bart.cpp.
// Before them what they share: keys of config.json that are read and written by one list, rotary keys, the layout of
// stored parameters, limits, names of activations, and tables of parameters' names.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/aten.h"
#include "base/json.h"
#include "base/registry.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Values of config.json and generation_config.json with their ranges checked: base's JsonReader with additions for
// model directories.
class ConfigReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  // Returns the value of a key that has() found.
  const nlohmann::json& at(const std::string& key) const { return object_.at(key); }
  // Returns whether a key is there with the value null.
  bool says_null(const std::string& key) const { return object_.contains(key) && object_.at(key).is_null(); }
  // Returns a number in [least, most]; the fallback if absent or null.
  double number(const std::string& key, double fallback, double least, double most);
  const std::string& where() const { return where_; }
  Problems& problems() { return problems_; }
};

// Ids of tokens, of which files may name others than the vocabulary has: those never occur.
struct TokenIds {
  int64_t vocabulary = 0;
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
  // Ids of tokens. Those that never occur are as if they were not there, and warn_of_ids() names them; a list may be
  // empty without them.
  void integer(const std::string& key, int64_t& value, TokenIds ids, int64_t fallback);
  void integer(const std::string& key, std::optional<int64_t>& value, TokenIds ids);
  void integers(const std::string& key, std::vector<int64_t>& value, TokenIds ids);
  void end_ids(const std::string& key, std::vector<int64_t>& value, TokenIds ids);
  // Returns whether an id may occur; otherwise notes it for warn_of_ids().
  bool occurs(const std::string& key, int64_t id, TokenIds ids);
  // Warns of the ids that were left out, once in a process.
  void warn_of_ids();
  // The name of an activation.
  void activation(const std::string& key, Activation& value, const std::string& fallback);
  // A flag that has one supported value.
  void fixed(const std::string& key, bool value);
  // A value that the caller reads in its own way. Returns whether it is there to be read. Null and empty lists are
  // fallbacks.
  bool custom(const std::string& key, const nlohmann::ordered_json& value);
  // Writes what is not read.
  void also(const std::string& key, const nlohmann::ordered_json& value);
  // Lists a key with another name that Transformers reads as well. Returns the one to read; both must say the same.
  const char* either(const char* key, const char* other);
  // Lists keys that are read elsewhere, or that change nothing.
  void known(std::initializer_list<const char*> keys) { listed_.insert(keys.begin(), keys.end()); }
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
  std::set<std::string> left_out_;  // ids with their keys
};

// ---- Keys of rotary positions in config.json
// In all forms that Transformers 5.23 reads, by its rules (model/families/rotary_keys.cpp).

// Names of a family's own keys. `share` is that of the rotated share of a head, which a family of whole heads has not.
struct RotaryKeys {
  const char* base = "rope_theta";
  const char* share = nullptr;
  double share_default = 1.0;
  double base_default = 10000.0;
};

// Lists all keys of rotary positions; max_positions and the head's width must be set. Problems: scalings and values
// that Transformers reads otherwise or not at all.
void rotary_keys(ConfigKeys& keys, TransformerConfig& config, const RotaryKeys& names = {});
// Lists them where layers with windows rotate otherwise (Gemma 3): rope_parameters hold an object for each kind.
void rotary_keys_by_window(ConfigKeys& keys, TransformerConfig& config);

// ---- Layout of stored parameters
// Transposed, or joined with others into one tensor.

// The way in which several parameters share one stored tensor, along their outputs.
enum class Join {
  kNone,
  kBlocks,  // one after the other, perhaps of unequal rows (GPT-2's c_attn, Phi-3's qkv_proj)
  kHeads,   // head by head: the first head of each, then the second of each (GPT-NeoX's and BLOOM's query_key_value)
};

// The place of a parameter in the files.
struct StoredTensor {
  std::string name;
  bool transposed = false;  // matrices are stored [in,out] (GPT-2's Conv1D)
  Join join = Join::kNone;
  int64_t part = 0;      // which of the joined ones
  int64_t parts = 1;     // how many are joined
  int64_t first = 0;     // outputs of the parts before it
  int64_t rows = 0;      // its own outputs
  int64_t all_rows = 0;  // outputs of all parts; 0: not joined
  bool one_row = false;  // a vector is stored [1,n] (final_logits_bias)
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

// Kinds of layers in config.json.
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

// Returns the names of activations in config.json; "gelu_new" is the tanh approximation.
const NamedValues<Activation>& activations();

// Returns a decoder-only configuration with RMS norms and no biases.
TransformerConfig decoder_only(const std::string& family);
// Returns a configuration with layer norms and biases in all layers, as GPT-2, BART and their relatives have.
TransformerConfig with_layer_norms(const std::string& family, bool encoder_decoder);

// Names that a family's files give to parameters.
struct NameTable {
  std::map<std::string, std::string> outside;  // of whole names: "head.weight" -> "lm_head.weight"
  std::map<std::string, std::string> blocks;   // what stands before a layer's number: "decoder" -> "model.layers."
  // Modules of a layer: "self_attention.query" -> "self_attn.q_proj", or of one stack's: "decoder.feed_forward.up".
  // Joined parameters have one name.
  std::map<std::string, std::string> modules;
  Join join = Join::kNone;   // of query, key and value
  bool joined_gate = false;  // the feed-forward gate and up are one tensor, in blocks
  bool transposed = false;   // matrices are stored [in,out]
};

// Reads the width of a head that divides the model's width; problems name `heads_key`.
void read_split_width(ConfigKeys& keys, TransformerConfig& config, const std::string& heads_key);

// A decoder-only family's own values, for a config.json without any.
struct DecoderOnlyDefaults {
  int64_t vocabulary = 0;
  bool tied_head = false;
  std::optional<int64_t> bos = {};
  std::optional<int64_t> eos = {};
};
// Lists the keys that all decoder-only families share: the vocabulary, token ids, the tied head. The head's width must
// be set: it gives the scale of attention.
void decoder_only_keys(ConfigKeys& keys, TransformerConfig& config, const DecoderOnlyDefaults& defaults);

// ---- Families

// Shapes that a family's files can hold.
struct FamilyShapes {
  bool heads_make_width = false;   // heads times head_width is the width
  int64_t ff_factor = 0;           // ff_width is so many times the width; 0: any
  bool grouped_keys = false;       // keys and values may have fewer heads than queries
  bool optional_gate = false;      // the feed-forward layers may have a gate or none
  int64_t unrotated_interval = 0;  // in new models one of so many layers does not rotate; 0: all do
  int64_t window_interval = 0;     // in new models all but one of so many layers have windows; 0: none has
  // Ways of new models, whose files can say otherwise.
  bool scaled_embedding = false;  // embedding_scale is the width's square root
  bool starts_with_eos = false;   // decoder_start is EOS; otherwise encoder-decoders start with padding
};

struct Family {
  std::string name;          // model_type in config.json, and TransformerConfig::family
  std::string architecture;  // architectures[0] in config.json

  // The norms, biases, positions and activation of new models. Sizes, ids and rotary width are left out.
  TransformerConfig base;
  FamilyShapes shapes = {};

  // Lists the keys of config.json. When they are read, the configuration begins as `base`, and problems with keys go to
  // the reader's list; tied_head becomes what the flags say, but the stored tensors decide (load_model).
  void (*keys)(ConfigKeys& keys, TransformerConfig& config);
  // Returns the names of parameters (model/transformer/parameters.h) in the files.
  const NameTable& (*names)(const TransformerConfig& config);

  std::vector<std::string> embedding_copies = {};  // stored names some writers add: they must equal the embedding
  // Patterns (`*` is any text) of stored names that the model never reads; such tensors are ignored with a log line.
  std::vector<std::string> unused = {};
  // Prefix of stored names, except the head's, that older files leave out ("transformer.").
  std::string optional_prefix = {};
  std::vector<std::string> other_architectures = {};  // names in config.json of models that are read alike
  // Stored names of the sinusoids. Files may lack them; if there, they must be near those that the model computes.
  std::vector<std::string> sinusoids = {};
  bool stores_sinusoids = false;  // Transformers complains of files without
};

// Returns all families.
const Registry<Family>& families();

// Returns the layers with windows among so many: all but one of each interval.
std::vector<int64_t> layers_with_windows(int64_t layers, int64_t interval);
// Sets what a new model of a family has by its sizes, which must be set: scales, rotary widths, and which layers have
// windows or do not rotate.
void derive_from_sizes(const Family& family, TransformerConfig& config);

// Returns the family of a parsed config.json by its architectures, without the prefix that a kind of model puts before
// them (model/files/model_directory.h), or else by its model_type. `where` names the file. Errors: UserError if neither
// key is there, or with the known names if no family has that name.
const Family& family_of(const nlohmann::json& config_json, const std::string& where, const std::string& prefix = {});

// Reads a configuration from config.json.
TransformerConfig read_config(const Family& family, ConfigKeys& keys);
// Returns whether names, with a blank before and behind each, hold a key.
bool lists(std::string_view names, const std::string& key);
// Looks at the keys of a config.json that `keys` does not list and `known` does not know. Those that give models of
// other families other numbers are problems; one warning names the rest.
void check_other_keys(ConfigKeys& keys, const nlohmann::json& config_json, bool (*known)(const std::string& key));
// Returns the complete config.json as Transformers reads it.
nlohmann::ordered_json write_config(const Family& family, TransformerConfig config);

// Returns where a parameter lies in a family's files. Parameters that drafters add keep their canonical names. Throws
// std::logic_error for a name that is not in the family's table.
StoredTensor stored_parameter(const Family& family, const std::string& parameter, const TransformerConfig& config);

// The families, one file each, or one for relatives.
std::vector<Family> t5_families();
std::vector<Family> bart_families();   // BART and other encoder-decoders with layer norms
std::vector<Family> llama_families();  // Llama and its relatives
Family gpt2_family();
Family opt_family();
Family gpt_neox_family();
Family bloom_family();

}  // namespace draftsmith::model
