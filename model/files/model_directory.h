// A Hugging Face model directory, opened and checked but not loaded: its family, configuration, generation settings,
// and the stored tensor of each parameter. Loading and inspecting both start here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/families/family.h"
#include "model/files/generation_config.h"
#include "model/files/model_kind.h"
#include "model/files/weight_files.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

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
