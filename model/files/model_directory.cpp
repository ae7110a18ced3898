#include "model/files/model_directory.h"

#include <algorithm>
#include <future>
#include <map>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "model/cpu/packed_weights.h"
#include "model/layers/parameter_source.h"
#include "model/transformer/draft_vocabulary.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json load_config_json(const fs::path& directory) {
  std::error_code status;
  if (!fs::is_directory(directory, status)) {
    throw UserError({directory.string(), "no such model directory",
                     "a directory with config.json and model.safetensors",
                     fs::exists(directory, status) ? "a file" : "nothing",
                     "`hf download OWNER/NAME --local-dir DIR` makes one of a model of the Hub"});
  }
  json value = load_json(directory / "config.json", 16'000'000);
  if (!value.is_object()) {
    throw UserError(
        {(directory / "config.json").string(), "is not a model's configuration", "a JSON object", brief(value), ""});
  }
  return value;
}

// Returns the hash of config.json without the path of a companion: the directory may be moved, or the companion copied
// into it.
std::string config_hash(const fs::path& directory, const CompanionRole* role) {
  if (role == nullptr) return sha256_file(directory / "config.json");
  json config = load_config_json(directory);
  const auto object = config.find(role->key);
  if (object != config.end() && object->contains(role->role) && object->at(role->role).is_object()) {
    object->at(role->role).erase("path");
  }
  return sha256(config.dump());
}

}  // namespace

std::string model_hash(const fs::path& directory) {
  // Refuses what is no model directory, but takes any kind of model: a router is bound to a Tandem secondary as well.
  const CompanionRole* role = read_settings(directory).kind->companion;
  std::map<std::string, std::string> hashes = {{"config.json", config_hash(directory, role)}};
  static RememberedHashes known;  // evaluations open the same model many times
  const WeightFiles weights(directory);
  for (const auto& file : weights.files()) {
    hashes[file->file().lexically_relative(directory).generic_string()] = known.of(file->file());
  }
  Sha256 all;
  for (const auto& [name, hash] : hashes) all.update(name + " " + hash + "\n");
  return all.hex_digest();
}

bool is_hash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

namespace {

constexpr size_t kMostMissingTensors = 40;

// Returns the companion that config.json names, if it names one.
std::optional<CompanionRecord> read_companion(const CompanionRole& role, const json& config_json,
                                              const std::string& where, Problems& problems) {
  const auto object = config_json.find(role.key);
  if (object == config_json.end() || !object->is_object() || !object->contains(role.role)) return std::nullopt;
  const std::string at = fmt::format("{}: {}: {}", where, role.key, role.role);
  JsonReader reader(object->at(role.role), at, problems);
  CompanionRecord record{reader.get_string("path"), reader.get_string("sha256")};
  if (problems.empty() && (!is_hash(record.hash) || record.path.empty())) {
    problems.add({at, "does not name a model", "a path and a SHA-256 of 64 hexadecimal digits",
                  fmt::format("\"{}\" and \"{}\"", record.path, record.hash.substr(0, 80)), ""});
  }
  return record;
}

}  // namespace

ModelSettings read_settings(const fs::path& directory, const ModelKind* wanted) {
  const json config_json = load_config_json(directory);
  const std::string where = (directory / "config.json").string();
  ModelSettings settings;
  settings.kind = &kind_of(config_json);
  if (wanted != nullptr) require_kind(*settings.kind, *wanted, directory.string());
  settings.family = &family_of(config_json, where, settings.kind->prefix);
  settings.says_untied = config_json.value("tie_word_embeddings", json()) == false;
  Problems problems;
  ConfigReader reader(config_json, where, problems);
  ConfigKeys keys(reader);
  settings.config = read_config(*settings.family, keys);
  if (settings.kind->keys != nullptr) settings.kind->keys(keys, settings.config);
  check_other_keys(keys, config_json, is_generation_key);
  if (problems.empty()) {
    settings.config.draft_vocabulary = read_draft_vocabulary(directory, reader, settings.config, problems);
  }
  if (settings.kind->companion != nullptr) {
    settings.companion = read_companion(*settings.kind->companion, config_json, where, problems);
  }
  problems.throw_if_any();
  settings.generation = read_generation_config(directory, config_json, settings.config, problems);
  problems.throw_if_any();
  settings.config.eos = settings.generation.eos_ids;
  settings.config.pad = settings.generation.pad;
  settings.config.decoder_start = settings.generation.decoder_start;
  return settings;
}

ModelDirectory::ModelDirectory(fs::path directory, const ModelKind& kind)
    : path_(std::move(directory)), settings_(read_settings(path_, &kind)), weights_(path_) {
  decide_prefix();
  require_prefix();
  decide_head();
  decide_head_bias();
  match_parameters();
}

bool ModelDirectory::same_tensor(const std::string& a, const std::string& b) const {
  const TensorEntry& first = weights_.entry(a);
  const TensorEntry& second = weights_.entry(b);
  const auto bytes_a = weights_.bytes(a);
  const auto bytes_b = weights_.bytes(b);
  return first.dtype == second.dtype && first.shape == second.shape &&
         std::equal(bytes_a.begin(), bytes_a.end(), bytes_b.begin(), bytes_b.end());
}

void ModelDirectory::decide_prefix() {
  const std::string& prefix = family().optional_prefix;
  const std::string embedding = stored_name("embedding.weight");
  without_prefix_ =
      !prefix.empty() && !weights_.contains(embedding) && weights_.contains(embedding.substr(prefix.size()));
}

// Refuses files whose embedding has its name behind another prefix than the family's: all their names are wrong then.
void ModelDirectory::require_prefix() const {
  const std::string wanted = embedding_name();
  // "shared.weight" (T5) has no prefix.
  const size_t begin = std::ranges::count(wanted, '.') > 1 ? wanted.find('.') + 1 : 0;
  const std::string bare = wanted.substr(begin);
  if (weights_.contains(wanted)) return;
  for (const auto& [name, file] : weights_.tensors()) {
    if (name != bare && !name.ends_with("." + bare)) continue;
    throw UserError({weights_.where(name), "has another prefix than the tensors of a " + family().name + " model",
                     "'" + wanted + "'", "'" + name + "'",
                     fmt::format("rename all tensors: '{}' in place of '{}' at the beginning of their names",
                                 wanted.substr(0, begin), name.substr(0, name.size() - bare.size()))});
  }
}

const std::string& ModelDirectory::stored_name(const std::string& parameter) const {
  return family().names(config()).outside.at(parameter);
}

std::string ModelDirectory::in_files(const std::string& stored_name) const {
  const bool shorter = without_prefix_ && stored_name.starts_with(family().optional_prefix);
  return shorter ? stored_name.substr(family().optional_prefix.size()) : stored_name;
}

// Returns the names of the embedding's copies as these files spell them.
std::vector<std::string> ModelDirectory::embedding_copies() const {
  std::vector<std::string> names = family().embedding_copies;
  for (std::string& name : names) name = in_files(name);
  return names;
}

// Returns the stored name of the embedding: some writers keep another of the tied names than the family's own.
std::string ModelDirectory::embedding_name() const {
  std::vector<std::string> names = embedding_copies();
  names.insert(names.begin(), in_files(stored_name("embedding.weight")));
  if (config().tied_head) names.push_back(stored_name("head.weight"));
  const auto stored =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return weights_.contains(name); });
  return stored == names.end() ? names.front() : *stored;
}

// Decides by the stored tensors, not the flags: Transformers 5 writes tie_word_embeddings: true for untied models as
// well. A stored head that equals the embedding is a copy of it, unless the flags say that it is untied. A file that
// itself says so must hold a head; in T5 and its cousins Transformers ties whatever the flag says.
void ModelDirectory::decide_head() {
  if (config().reads_features()) return;  // a stored head is its own, and the flag says what its target does
  const std::string embedding = embedding_name();
  const std::string& head = stored_name("head.weight");
  const bool tied = config().tied_head;
  const bool own_head = weights_.contains(head) && embedding != head;
  const bool equal = own_head && tied && same_tensor(head, embedding);
  if (own_head && tied && !equal && !config().encoder_decoder) {
    log_warning(
        "{}: differs from the embedding that config.json ties it to; it is used as a separate head, as Transformers "
        "does (tie_word_embeddings: false would say so)",
        weights_.where(head));
  }
  const bool needs_head = settings_.says_untied && config().positions != Positions::kRelativeBias;
  settings_.config.tied_head = equal || !(own_head || needs_head);
}

// Files without a bias on logits have none: Transformers takes zeros.
void ModelDirectory::decide_head_bias() {
  if (config().head_bias) settings_.config.head_bias = weights_.contains(stored_name("head.bias"));
}

void ModelDirectory::check_parameter(const Stored& stored, Problems& problems) const {
  const std::string& name = stored.tensor.name;
  const std::vector<int64_t> shape = stored_shape(stored.parameter.shape, stored.tensor);
  if (!weights_.contains(name)) {
    problems.add({fmt::format("{}: tensor '{}'", path_.string(), name), "is missing from the weights",
                  "shape " + shape_text(shape), "nothing",
                  name != stored_name("head.weight")
                      ? ""
                      : "if the embedding is the head, set \"tie_word_embeddings\": true in config.json"});
    return;
  }
  const TensorEntry& entry = weights_.entry(name);
  if (entry.shape != shape) {
    problems.add({weights_.where(name), "has another shape than config.json asks for", shape_text(shape),
                  shape_text(entry.shape), ""});
  } else if (!float_type(entry.dtype)) {
    problems.add({weights_.where(name), "is not stored as floating point numbers", "F32, F16, BF16 or F64", entry.dtype,
                  "quantised checkpoints are not supported; use the original one"});
  }
}

void ModelDirectory::match_parameters() {
  Problems problems;
  const std::string embedding = embedding_name();
  for (const ParameterSpec& spec : expected_parameters(config())) {
    StoredTensor tensor = stored_parameter(family(), spec.name, config());
    tensor.name = spec.name == "embedding.weight" ? embedding : in_files(tensor.name);
    parameters_.push_back({spec, std::move(tensor)});
    // The first of joined parameters stands for all.
    if (problems.list().size() < kMostMissingTensors && parameters_.back().tensor.part == 0) {
      check_parameter(parameters_.back(), problems);
    }
  }
  check_others(problems);
  problems.throw_if_any();
}

bool ModelDirectory::is_unused(const std::string& name) const {
  const std::string full = without_prefix_ ? family().optional_prefix + name : name;
  return std::any_of(family().unused.begin(), family().unused.end(),
                     [&](const auto& pattern) { return fnmatch(pattern.c_str(), full.c_str(), FNM_NOESCAPE) == 0; });
}

// Compares stored sinusoids with those that the model computes, as far as both reach; fp16 is near enough.
void ModelDirectory::check_sinusoids(const std::string& name, Problems& problems) const {
  constexpr double kNear = 1e-3;
  const TensorEntry& entry = weights_.entry(name);
  const int64_t first = config().position_offset, width = config().width;
  const bool comparable =
      float_type(entry.dtype) && entry.shape.size() == 2 && entry.shape[0] > first && entry.shape[1] == width;
  double difference = 0;
  if (comparable) {
    TransformerConfig shown = config();
    shown.max_positions = std::min(shown.max_positions, entry.shape[0] - first);
    const at::Tensor wanted = sinusoids(shown);
    const at::Tensor stored = weights_.stored(name).narrow(0, first, wanted.size(0)).to(at::kFloat);
    difference = (stored - wanted).abs().max().item<double>();
  }
  if (comparable && difference <= kNear) return log_info("{}: ignored, the model computes it", weights_.where(name));
  problems.add(
      {weights_.where(name), "holds other positions than the sinusoids of a " + family().name + " model",
       fmt::format("at least {} rows of {} numbers, the sinusoids", first + 1, width),
       comparable ? fmt::format("a difference of {:.2g}", difference) : entry.dtype + " " + shape_text(entry.shape),
       "learned positions are not supported in this family"});
}

void ModelDirectory::check_others(Problems& problems) const {
  const auto is_sinusoids = [&](const std::string& name) {
    return std::ranges::any_of(family().sinusoids, [&](const auto& known) { return in_files(known) == name; });
  };
  std::set<std::string> used;
  for (const Stored& stored : parameters_) {
    used.insert(stored.tensor.name);
  }
  const std::string embedding = embedding_name();
  std::vector<std::string> copies = embedding_copies();
  copies.push_back(stored_name("head.weight"));
  for (const auto& [name, file] : weights_.tensors()) {
    if (used.count(name) != 0 || problems.list().size() >= kMostMissingTensors) {
      continue;
    }
    const bool copy = std::find(copies.begin(), copies.end(), name) != copies.end() && weights_.contains(embedding);
    if (copy && !same_tensor(name, embedding)) {
      problems.add({weights_.where(name), "should be a copy of '" + embedding + "' and is not", "equal tensors",
                    "other shape, type or values", "separate encoder and decoder embeddings are not supported"});
    } else if (is_sinusoids(name)) {
      check_sinusoids(name, problems);
    } else if (is_unused(name)) {
      log_info("{}: ignored, this model never reads it", weights_.where(name));
    } else if (!copy) {
      problems.add({weights_.where(name), "is not a tensor of a " + family().name + " model of this configuration",
                    "nothing of this name", weights_.entry(name).dtype + " " + shape_text(weights_.entry(name).shape),
                    "do config.json and the weights belong together?"});
    }
  }
}

namespace {

// The parameters of an opened directory. They are read one at a time, converted to the computing type and moved to the
// device. Those that need no conversion are not copied: they are views of the mapped files and must not be written to.
class DirectoryParameters final : public ParameterSource {
 public:
  // Parameters of a model in `dtype`; if it is loaded for decoding, in number_type() of it.
  DirectoryParameters(const ModelDirectory& directory, const LoadOptions& options)
      : directory_(directory),
        device_(options.device),
        dtype_(options.dtype),
        numbers_(options.pack ? number_type(dtype_, device_) : dtype_) {
    for (const ModelDirectory::Stored& stored : directory.parameters()) parameters_[stored.parameter.name] = &stored;
    // In order, faster than page faults ask for it, while the first tensors are converted.
    try {
      reading_ = std::async(std::launch::async, [&directory] { directory.weights().will_need(); });
    } catch (const std::system_error&) {
      // Without another thread, page faults read.
    }
  }

  at::Tensor find(const std::string& name) override {
    const at::Tensor value = stored(name);
    if (!value.defined()) return {};
    return value.to(device_, parameter_dtype(directory_.config(), name, numbers_)).contiguous();
  }

  // Does as find(), but always returns memory of its own.
  at::Tensor copy(const std::string& name) {
    return stored(name).to(at::TensorOptions(device_).dtype(parameter_dtype(directory_.config(), name, numbers_)),
                           /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  }

  // Returns the parameter as stored if others are fp32 on the CPU, otherwise as find().
  at::Tensor unconverted(const std::string& name) override {
    if (!device_.is_cpu() || numbers_ != at::kFloat) return find(name);
    const at::Tensor value = stored(name);
    return value.defined() ? value.contiguous() : value;
  }

  at::ScalarType type() const override { return dtype_; }

  // Releases the pages of the files that were read so far.
  void built() override {
    last_ = at::Tensor();
    last_name_.clear();
    directory_.weights().forget_pages();
  }

 private:
  // Returns the parameter as stored, perhaps strided; undefined if there is none.
  at::Tensor stored(const std::string& name) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) return {};
    const StoredTensor& where = found->second->tensor;
    if (where.name != last_name_) {
      last_ = directory_.weights().stored(where.name);
      last_name_ = where.name;
    }
    return take_parameter(last_, where, directory_.config().heads);
  }

  const ModelDirectory& directory_;
  at::Device device_;
  at::ScalarType dtype_;
  at::ScalarType numbers_;  // the type of parameters that are not packed
  std::map<std::string, const ModelDirectory::Stored*> parameters_;
  std::string last_name_;  // the stored tensor that was read last: often several parameters are joined in one
  at::Tensor last_;
  std::future<void> reading_;  // waited for by its destructor
};

// Errors: UserError for a device without int8 weights, and for models that are not packed.
void require_int8_fits(const ModelDirectory& opened, const LoadOptions& options) {
  if (options.device.is_cpu() && options.pack) return;
  throw UserError({opened.path().string(), "weights of int8 are for decoding on CPUs",
                   options.pack ? "--device cpu, or fp32, bf16 or fp16" : "fp32, bf16, fp16 or fp64",
                   options.pack ? "int8 on " + options.device.str() : "int8 for a model that is not packed", ""});
}

}  // namespace

std::unique_ptr<TransformerModel> load_model(const fs::path& directory, const LoadOptions& options) {
  return load_model(ModelDirectory(directory), options);
}

std::unique_ptr<TransformerModel> load_model(const ModelDirectory& opened, const LoadOptions& options) {
  if (options.dtype == at::kChar) require_int8_fits(opened, options);
  DirectoryParameters source(opened, options);
  std::unique_ptr<TransformerModel> model;
  if (options.pack) {
    model = std::make_unique<TransformerModel>(opened.config(), source);
  } else {
    std::map<std::string, at::Tensor> parameters;
    for (const auto& [parameter, stored] : opened.parameters()) {
      parameters[parameter.name] = source.copy(parameter.name);
      source.built();
    }
    model = std::make_unique<TransformerModel>(opened.config(), std::move(parameters));
  }
  model->set_name(opened.path().string());
  return model;
}

void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where) {
  if (tokenizer_vocabulary > config.vocabulary) {
    throw UserError({where, "the tokenizer has more ids than the model has embeddings",
                     fmt::format("at most {} (vocab_size of the model)", config.vocabulary),
                     fmt::format("{}", tokenizer_vocabulary), "tokenizer and model do not belong together"});
  }
}

}  // namespace draftsmith::model
