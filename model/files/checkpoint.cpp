#include "model/files/checkpoint.h"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/cpu/packed_weights.h"
#include "model/families/family.h"
#include "model/files/copy_model.h"
#include "model/files/write_weights.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/files/model_directory.h"
#include "model/layers/parameter_source.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

at::ScalarType parameter_dtype(const TransformerConfig& config, const std::string& parameter, at::ScalarType dtype) {
  return dtype == at::kHalf && keeps_fp32_in_half(config, parameter) ? at::kFloat : dtype;
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
    directory.weights().will_need();
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
};

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string torch_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

ordered_json config_json(const Family& family, const TransformerConfig& config, const SaveOptions& options) {
  const ModelKind& kind = kind_of(config);
  ordered_json out;
  out["architectures"] = {kind.prefix + family.architecture};
  out["model_type"] = kind.model_type.empty() ? family.name : kind.model_type;
  out.update(write_config(family, config));
  out["dtype"] = torch_name(options.dtype);
  if (kind.keys != nullptr) {
    ConfigKeys keys(out, true);
    TransformerConfig written = config;
    kind.keys(keys, written);
  }
  if (options.companion) {
    out[kind.companion->key][kind.companion->role] = {{"path", options.companion->path},
                                                      {"sha256", options.companion->hash}};
  }
  return out;
}

// Returns the tensors as the family's files hold them, joined where these join parameters.
std::vector<TensorToStore> tensors_to_store(const TransformerModel& model, const Family& family, at::ScalarType dtype) {
  const TransformerConfig& config = model.config();
  std::map<std::string, std::vector<at::Tensor>> waiting;  // parts of a joined tensor
  std::vector<TensorToStore> tensors;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    const StoredTensor where = stored_parameter(family, spec.name, config);
    std::vector<at::Tensor>& parts = waiting[where.name];
    parts.push_back(model.parameters().at(spec.name).detach());
    if (static_cast<int64_t>(parts.size()) < where.parts) continue;
    tensors.push_back(
        {where.name, join_parameters(parts, where, config.heads), parameter_dtype(config, spec.name, dtype)});
    waiting.erase(where.name);
  }
  return tensors;
}

// Errors: UserError for a device without int8 weights, and for models that are not packed.
void require_int8_fits(const ModelDirectory& opened, const LoadOptions& options) {
  if (options.device.is_cpu() && options.pack) return;
  throw UserError({opened.path().string(), "weights of int8 are for decoding on CPUs",
                   options.pack ? "--device cpu, or fp32, bf16 or fp16" : "fp32, bf16, fp16 or fp64",
                   options.pack ? "int8 on " + options.device.str() : "int8 for a model that is not packed", ""});
}

// Errors: UserError that names the first tensor with numbers that are not finite, if there is one.
void require_finite(const ModelDirectory& opened) {
  for (const ModelDirectory::Stored& stored : opened.parameters()) {
    const std::string& name = stored.tensor.name;
    if (opened.weights().stored(name).isfinite().all().item<bool>()) continue;
    throw UserError({opened.weights().where(name), "a number is NaN or infinite, which int8 cannot hold",
                     "finite weights", "", "the file is damaged, or its training diverged"});
  }
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
    try {
      model = std::make_unique<TransformerModel>(opened.config(), source);
    } catch (const RunError&) {
      if (source.type() == at::kChar) require_finite(opened);
      throw;
    }
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

void write_model_files(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  const TransformerConfig& config = model.config();
  const Family& family = families().at(config.family);
  write_weight_files(directory, tensors_to_store(model, family, options.dtype), options.shard_bytes);
  ordered_json json = config_json(family, config, options);
  write_draft_vocabulary(config, directory, json);
  write_json(directory / "config.json", json);
  write_json(directory / "generation_config.json",
             to_json(options.generation.value_or(default_generation_config(config))));
  if (!options.tokenizer.empty()) {
    write_tokenizer(options.tokenizer, config, directory);
  }
}

void save_model(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  write_new_directory(directory, [&](const fs::path& temporary) { write_model_files(temporary, model, options); });
}

void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where) {
  if (tokenizer_vocabulary > config.vocabulary) {
    throw UserError({.where = where,
                     .what = "the tokenizer has more ids than the model has embeddings",
                     .expected = fmt::format("at most {} (vocab_size of the model)", config.vocabulary),
                     .found = fmt::format("{}", tokenizer_vocabulary),
                     .hint = "tokenizer and model do not belong together"});
  }
}

}  // namespace draftsmith::model
