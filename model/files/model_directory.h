// Hugging Face model directories: kinds of models, a model's hash, new directories, and a directory opened and checked
// but not loaded. That one gives the family, configuration, generation settings and the stored tensor of each
// parameter; loading and inspecting both start there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/families/common.h"
#include "model/families/family.h"
#include "model/files/generation_config.h"
#include "model/files/weight_files.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// ---- Kinds of models
// A model of a kind of our own has the kind's name before its family's architecture in config.json
// ("DraftsmithTandemT5ForConditionalGeneration", model_type "draftsmith_tandem"). So other tools do not take it for an
// ordinary model and fill in random weights. The kinds are in model/models/.

struct ModelKind {
  std::string name;             // for messages: "a Tandem secondary"
  std::string prefix = {};      // before the family's architecture; empty: an ordinary model
  std::string model_type = {};  // in config.json; empty: the family's
  std::string hint;             // what to do with such a directory where another kind is wanted

  // Returns whether a configuration is of this kind; nullptr: not to be seen from one.
  bool (*describes)(const TransformerConfig& config) = nullptr;
  // Reads the kind's part of config.json, adding every problem to the reader's list. `config` is otherwise complete;
  // `where` names the file.
  void (*read)(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems) = nullptr;
  // Adds the kind's part to config.json.
  void (*write)(const TransformerConfig& config, nlohmann::ordered_json& config_json) = nullptr;
  // Removes from config.json the paths of other models, which are no part of this one: model_hash() ignores them.
  void (*remove_paths)(nlohmann::json& config_json) = nullptr;
  // Checks everything about a directory of this kind, its weights included. Errors: UserError.
  void (*check_directory)(const std::filesystem::path& directory) = nullptr;

  friend bool operator==(const ModelKind& a, const ModelKind& b) { return a.name == b.name; }
};

// Returns the kind of models that have only what their family has.
const ModelKind& ordinary_kind();

// Returns all kinds, the ordinary one first. The list is in model/models/language_models.cpp.
const std::vector<ModelKind>& model_kinds();

// Returns the kind of a configuration.
const ModelKind& kind_of(const TransformerConfig& config);
// Returns the kind that architectures[0] names; the ordinary one if it names no other.
const ModelKind& kind_of(const nlohmann::json& config_json);
// Returns the kind of a directory; the ordinary one if its config.json cannot be read.
const ModelKind& kind_of_directory(const std::filesystem::path& directory);

// Refuses a model of another kind than `wanted`. Errors: UserError at `where` with the hint of the kind that was found.
void require_kind(const ModelKind& found, const ModelKind& wanted, const std::string& where);

// Returns the object that a kind adds to config.json under `key`, or nullptr with a problem.
const nlohmann::json* kind_object(ConfigReader& reader, const std::string& key);

// ---- The identity of a model as one hash
// Files bound to a model (a teacher's cache, a Tandem secondary) name it by this hash and find it wherever it was
// moved.

// Returns the SHA-256 over config.json and the weight files, their names included, as 64 hex digits. Generation
// settings, the tokenizer, additions of ours and the path of a companion (model/models/companion.h) do not change it.
// Reads all weights, but each file only once in a process while its size and modification time stay the same. Errors:
// UserError as load_config and WeightFiles.
std::string model_hash(const std::filesystem::path& directory);

// ---- New directories of models and other results
// They get their names only when everything in them is written.

// Returns the directory's path without a trailing slash if nothing but perhaps an empty directory lies there. Long runs
// call it before they start. Errors: UserError.
std::filesystem::path require_free_place(const std::filesystem::path& directory);

// Lets `fill` write into an empty directory with a temporary name, then renames it to `directory`. If `fill` throws,
// nothing is left. Missing parents are created. Errors: those of require_free_place(); RunError.
void write_new_directory(const std::filesystem::path& directory,
                         const std::function<void(const std::filesystem::path& temporary)>& fill);

// Reads config.json of a directory. tied_head is what its flags say; ModelDirectory looks at the tensors. Errors
// (UserError): no such directory or file, broken JSON, an unknown architecture, a model of another kind, values out of
// range (all of them).
TransformerConfig load_config(const std::filesystem::path& directory, const ModelKind& kind = ordinary_kind());

class ModelDirectory {
 public:
  // A parameter and where it is stored.
  struct Stored {
    ParameterSpec parameter;
    StoredTensor tensor;  // by the name in these files
  };

  // Opens and checks the directory. Errors (UserError): those of load_config and WeightFiles; then all at once: missing
  // and unexpected tensors, wrong shapes, types that are not floating point, copies of the embedding that differ from
  // it.
  explicit ModelDirectory(std::filesystem::path directory, const ModelKind& kind = ordinary_kind());

  const std::filesystem::path& path() const { return path_; }
  const Family& family() const { return *family_; }
  // Returns the configuration: its head is tied if no other head is stored; EOS and start ids are those of the
  // generation settings.
  const TransformerConfig& config() const { return config_; }
  const GenerationConfig& generation() const { return generation_; }
  const WeightFiles& weights() const { return weights_; }
  // Returns the parameters in the order of expected_parameters().
  const std::vector<Stored>& parameters() const { return parameters_; }

 private:
  void read_config(const ModelKind& kind);
  bool same_tensor(const std::string& a, const std::string& b) const;
  std::string embedding_name() const;
  void decide_prefix();
  // Returns a stored name as these files spell it.
  std::string in_files(const std::string& stored_name) const;
  void decide_head();
  void match_parameters();
  void check_parameter(const Stored& stored, Problems& problems) const;
  void check_others(Problems& problems) const;
  bool is_unused(const std::string& name) const;

  std::filesystem::path path_;
  const Family* family_ = nullptr;
  TransformerConfig config_;
  GenerationConfig generation_;
  WeightFiles weights_;
  bool without_prefix_ = false;  // the files leave out the family's optional prefix
  std::vector<Stored> parameters_;
};

// The description of a model directory that `draftsmith inspect` prints.
struct ModelDescription {
  ModelKind kind = ordinary_kind();
  std::string family;
  std::string architecture;  // the kind's prefix and the family's name
  TransformerConfig config;
  GenerationConfig generation;
  int64_t parameters = 0;                        // numbers in all parameters, tied ones once
  std::map<std::string, int64_t> dtypes;         // stored type -> tensors of it
  std::map<std::string, uint64_t> weight_files;  // file name -> bytes
  std::string tokenizer_file;  // spiece.model, tokenizer.model, tokenizer.json or vocab.json; empty: none
  std::string tokenizer_hash;  // SHA-256 of that file
};

// Opens and checks a directory of any kind of one transformer without loading it. Errors: as ModelDirectory.
ModelDescription describe_model(const std::filesystem::path& directory);

}  // namespace draftsmith::model
