// Hugging Face model directories, read: kinds of models, a model's hash, a directory opened and checked, and loading.
// The opened one gives the kind, family, configuration, generation settings and the stored tensor of each parameter;
// loading and inspecting both start there. model/files/checkpoint.h writes such directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/aten.h"
#include "model/families/family.h"
#include "model/files/generation_config.h"
#include "model/files/weight_files.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_config.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// ---- Kinds of models
// A model of a kind of our own has the kind's name before its family's architecture in config.json
// ("DraftsmithTandemT5ForConditionalGeneration", model_type "draftsmith_tandem"). So other tools do not take it for an
// ordinary model and fill in random weights. The kinds are in model/models/.

// Two models as messages name them.
struct PairNames {
  std::string own;
  std::string companion;
};

// How a kind names its companion, another model that it reads (model/models/companion.h), in config.json:
//   "KEY": {..., "ROLE": {"path", "sha256"}}
struct CompanionRole {
  const char* key;     // of the kind's object
  const char* role;    // "primary": of the record in that object, in messages, and of a companion's folder inside
  const char* reader;  // "Tandem secondary": the kind's models in messages
  const char* remedy;  // for one that is gone, after "name the primary where it lies now (--model)"
  // Refuses a companion that models of this kind cannot read.
  void (*require_pair)(const TransformerConfig& own, const TransformerConfig& companion, const PairNames& names);
};

// The companion that a config.json names.
struct CompanionRecord {
  std::string path;  // relative to the directory; equal to the role: it lies inside
  std::string hash;  // model_hash()
};

struct ModelKind {
  std::string name;             // for messages: "a Tandem secondary"
  std::string prefix = {};      // before the family's architecture; empty: an ordinary model
  std::string model_type = {};  // in config.json; empty: the family's
  std::string hint;             // what to do with such a directory where another kind is wanted

  // Returns whether a configuration is of this kind; nullptr: not to be seen from one.
  bool (*describes)(const TransformerConfig& config) = nullptr;
  // Lists the kind's keys of config.json. `config` is otherwise complete.
  void (*keys)(ConfigKeys& keys, TransformerConfig& config) = nullptr;
  const CompanionRole* companion = nullptr;  // nullptr: it reads no other model

  friend bool operator==(const ModelKind& a, const ModelKind& b) { return a.name == b.name; }
};

// Returns the kind of models that have only what their family has.
const ModelKind& ordinary_kind();

// Returns all kinds, the ordinary one first. This list and the functions below are in model/models/language_models.cpp.
const std::vector<ModelKind>& model_kinds();

// Returns the kind of a configuration.
const ModelKind& kind_of(const TransformerConfig& config);
// Returns the kind that architectures[0] names; the ordinary one if it names no other.
const ModelKind& kind_of(const nlohmann::json& config_json);
// Returns the kind of a directory; the ordinary one if its config.json cannot be read.
const ModelKind& kind_of_directory(const std::filesystem::path& directory);

// Refuses a model of another kind than `wanted`. Errors: UserError at `where` with the hint of the kind that was found.
void require_kind(const ModelKind& found, const ModelKind& wanted, const std::string& where);

// ---- The identity of a model as one hash
// Files bound to a model (a teacher's cache, a Tandem secondary) name it by this hash and find it wherever it was
// moved.

// Returns the SHA-256 over config.json and the weight files, their names included, as 64 hex digits. Generation
// settings, the tokenizer, additions of ours and the path of a companion (model/models/companion.h) do not change it.
// Reads all weights, but each file only once in a process while its size and modification time stay the same. Errors:
// UserError as read_settings() and WeightFiles.
std::string model_hash(const std::filesystem::path& directory);
// Returns whether a text has the form of such a hash.
bool is_hash(const std::string& text);

// ---- What a directory says of its model

struct ModelSettings {
  const ModelKind* kind = nullptr;
  const Family* family = nullptr;
  // Its tied_head is what the flags say; EOS, padding and start ids are those of the generation settings.
  TransformerConfig config;
  GenerationConfig generation;
  std::optional<CompanionRecord> companion;  // absent: none is named, as in checkpoints of training
  bool says_untied = false;                  // config.json itself says tie_word_embeddings: false
};

// Reads and checks config.json and generation_config.json. Errors (UserError): no such directory or file, broken JSON,
// an unknown architecture, a model of another kind than `wanted` (nullptr: any), values out of range (all of them).
ModelSettings read_settings(const std::filesystem::path& directory, const ModelKind* wanted = nullptr);

class ModelDirectory {
 public:
  // A parameter and where it is stored.
  struct Stored {
    ParameterSpec parameter;
    StoredTensor tensor;  // by the name in these files
  };

  // Opens and checks the directory. Errors (UserError): those of read_settings() and WeightFiles; then all at once:
  // missing and unexpected tensors, wrong shapes, types that are not floating point, copies of the embedding that
  // differ from it.
  explicit ModelDirectory(std::filesystem::path directory, const ModelKind& kind = ordinary_kind());

  const std::filesystem::path& path() const { return path_; }
  const ModelKind& kind() const { return *settings_.kind; }
  const Family& family() const { return *settings_.family; }
  // Returns the configuration: its head is tied if no other head is stored.
  const TransformerConfig& config() const { return settings_.config; }
  const GenerationConfig& generation() const { return settings_.generation; }
  const std::optional<CompanionRecord>& companion() const { return settings_.companion; }
  const WeightFiles& weights() const { return weights_; }
  // Returns the parameters in the order of expected_parameters().
  const std::vector<Stored>& parameters() const { return parameters_; }

 private:
  bool same_tensor(const std::string& a, const std::string& b) const;
  std::string embedding_name() const;
  void decide_prefix();
  void require_prefix() const;
  // Returns the family's name of a parameter outside the layers.
  const std::string& stored_name(const std::string& parameter) const;
  // Returns a stored name as these files spell it.
  std::string in_files(const std::string& stored_name) const;
  void decide_head();
  void decide_head_bias();
  std::vector<std::string> embedding_copies() const;
  void match_parameters();
  void check_parameter(const Stored& stored, Problems& problems) const;
  void check_others(Problems& problems) const;
  void check_sinusoids(const std::string& name, Problems& problems) const;
  bool is_unused(const std::string& name) const;

  std::filesystem::path path_;
  ModelSettings settings_;
  WeightFiles weights_;
  bool without_prefix_ = false;  // the files leave out the family's optional prefix
  std::vector<Stored> parameters_;
};

// ---- Loading

struct LoadOptions {
  at::Device device = at::kCPU;
  // Type of the loaded model, whatever is stored; fp16 keeps some weights in fp32. kChar: weights of linear layers in
  // int8 with a scale for each output, all other numbers in fp32; packed on CPUs only. kBFloat16 packed on a CPU:
  // likewise only the weights of linear layers, whose inputs and sums are fp32.
  at::ScalarType dtype = at::kFloat;
  // Loads for decoding only, in no more memory than the weights need. Weights in the needed type stay in the mapped
  // files, which may be removed or replaced while the model lives, but not written over in place. Set false if the
  // parameters are to be trained, changed or compared.
  bool pack = true;
};

// Loads an ordinary model. Errors: UserError that names every problem of the directory, see ModelDirectory; in int8 for
// other devices than CPUs and unpacked models, and RunError for weights that are not finite. Other kinds are refused:
// model/models/ has functions that load them.
std::unique_ptr<TransformerModel> load_model(const std::filesystem::path& directory, const LoadOptions& options = {});
// Loads the model of an opened directory of any kind.
std::unique_ptr<TransformerModel> load_model(const ModelDirectory& opened, const LoadOptions& options = {});

// Refuses a tokenizer with more ids than the model has embeddings; fewer are fine. Errors: UserError.
void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where);

}  // namespace draftsmith::model
