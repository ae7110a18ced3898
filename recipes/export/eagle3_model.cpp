// Features drafters of Llama and Qwen targets as EAGLE-3 directories, in the form of the library `speculators` that
// vLLM loads: config.json with the layers' shape as a Llama's, and model.safetensors with the drafter's layers, its
// head and the maps of a pruned vocabulary.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/transformer/parameters.h"
#include "recipes/export/export_model.h"
#include "recipes/inspection.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using model::TransformerConfig;

// Returns what of a drafter vLLM's EAGLE-3 layers cannot compute; empty: nothing.
std::string beyond_eagle3(const TransformerConfig& config) {
  if (config.features.block) return "block mode";
  if (config.encoder_decoder) return "an encoder-decoder";
  if (config.family != "llama") return "layers of family " + config.family;
  if (config.projection_bias || config.output_bias || config.feed_forward_bias) return "biases";
  if (config.activation != model::Activation::kSilu) return "another activation than SiLU";
  if (config.embedding_scale != 1 || config.residual_scale != 1 || config.output_scale != 1) return "scaled states";
  if (!config.window_layers.empty()) return "layers with windows";
  return {};
}

}  // namespace

void require_eagle3(const ExportOptions& options, const TransformerConfig& config) {
  Problems problems;
  problems.add_all(changed_files(options.model));
  if (const std::string beyond = beyond_eagle3(config); !beyond.empty()) {
    problems.add({.where = options.model.string(),
                  .what = "vLLM's EAGLE-3 drafters have plain Llama layers over a decoder-only target",
                  .expected = "a features drafter of a Llama or Qwen model",
                  .found = beyond});
  }
  if (options.format != "vllm") {
    problems.add({.where = options.model.string(),
                  .what = "a features drafter is no model that decodes alone",
                  .expected = "--format vllm, which writes an EAGLE-3 directory",
                  .found = "--format " + options.format});
  }
  problems.throw_if_any();
}

namespace {

nlohmann::ordered_json eagle3_config(const TransformerConfig& config, const model::ModelDirectory& target) {
  nlohmann::ordered_json layer = model::write_config(model::families().at("llama"), config);
  layer["model_type"] = "llama";
  layer["architectures"] = {"LlamaForCausalLM"};
  layer["tie_word_embeddings"] = false;
  layer["num_aux_hidden_states"] = config.features.layers.size();  // vLLM takes three if it is absent
  nlohmann::ordered_json out;
  out["architectures"] = {"Eagle3Speculator"};
  out["speculators_model_type"] = "eagle3";
  out["speculators_version"] = "0.1.0";
  out["draft_vocab_size"] = config.vocabulary_rows();
  out["target_hidden_size"] = target.config().width;
  out["norm_before_residual"] = false;  // the residual stream begins with the state itself
  out["eagle_aux_hidden_state_layer_ids"] = config.features.layers;
  out["speculators_config"] = {
      {"algorithm", "eagle3"},
      {"default_proposal_method", "greedy"},
      {"proposal_methods",
       {{{"proposal_type", "greedy"},
         {"speculative_tokens", config.features.unrolled},
         {"verifier_accept_k", 1},
         {"accept_tolerance", 0.0}}}},
      {"verifier",
       {{"name_or_path", fs::canonical(target.path()).string()}, {"architectures", {target.family().architecture}}}}};
  out["transformer_layer_config"] = layer;
  return out;
}

// Returns the name of a drafter's parameter in such a directory.
std::string eagle3_name(const std::string& name, const TransformerConfig& config) {
  static const std::map<std::string, std::string> kOwn = {{"feature_projection.weight", "fc.weight"},
                                                          {"feature_norm.weight", "layers.0.hidden_norm.weight"}};
  if (const auto own = kOwn.find(name); own != kOwn.end()) return own->second;
  const std::string stored = model::stored_parameter(model::families().at("llama"), name, config).name;
  return stored.starts_with("model.") ? stored.substr(6) : stored;
}

// Returns the head's weights as the target's files hold them.
at::Tensor stored_head(const model::ModelDirectory& target) {
  const std::string name = model::head_parameter(target.config());
  const auto& parameters = target.parameters();
  const auto found = std::ranges::find(parameters, name, [](const auto& stored) { return stored.parameter.name; });
  return model::take_parameter(target.weights().stored(found->tensor.name), found->tensor, target.config().heads);
}

// Returns the drafter's tensors under their names there, in the drafter's type or that of --dtype.
std::vector<model::TensorToStore> eagle3_tensors(const ExportOptions& options, const model::ModelDirectory& opened,
                                                 const model::ModelDirectory& target) {
  const TransformerConfig& config = opened.config();
  const at::ScalarType stored = stored_type(opened), type = type_for(options, stored);
  const auto drafter =
      model::load_with_companion(opened.kind(), options.model, target.path(),
                                 {.dtype = stored == at::kDouble ? at::kDouble : at::kFloat, .pack = false});
  std::vector<model::TensorToStore> tensors;
  for (const auto& [name, value] : drafter->parameters()) tensors.push_back({eagle3_name(name, config), value, type});
  if (!config.own_head()) {
    const at::Tensor head = stored_head(target);
    tensors.push_back({"lm_head.weight", head, type_for(options, head.scalar_type())});
  }
  for (const model::TensorToStore& tensor : tensors) {
    work_point();
    require_fits(options, tensor.name, tensor.tensor, tensor.dtype);
  }
  if (config.vocabulary_rows() == config.vocabulary) return tensors;  // vLLM has no place for maps of all ids
  const at::Tensor ids = at::tensor(config.draft_vocabulary.ids, at::kLong);
  tensors.push_back({"d2t", ids - at::arange(ids.size(0), at::kLong), at::kLong});
  tensors.push_back({"t2d", at::zeros({config.vocabulary}, at::kBool).index_fill_(0, ids, true), at::kBool});
  return tensors;
}

}  // namespace

ExportSummary export_eagle3(const ExportOptions& options) {
  const model::ModelDirectory opened(options.model, model::features_kind());
  const TransformerConfig& config = opened.config();
  require_eagle3(options, config);
  const fs::path out = model::require_free_place(options.out);
  const model::ModelDirectory target(options.target ? *options.target
                                                    : model::companion_directory(opened.kind(), options.model));
  auto tensors = eagle3_tensors(options, opened, target);
  const at::ScalarType type = type_for(options, stored_type(opened));
  const ExportSummary summary{
      .dtype = model::stored_dtype_name(type), .parameters = tensors.size(), .eagle3 = config.features.unrolled};
  model::write_new_directory(out, [&](const fs::path& temporary) {
    model::write_safetensors(temporary / "model.safetensors", std::move(tensors));
    nlohmann::ordered_json json = eagle3_config(config, target);
    static const std::map<std::string, const char*> kTypes = {
        {"F16", "float16"}, {"BF16", "bfloat16"}, {"F32", "float32"}, {"F64", "float64"}};
    json["torch_dtype"] = kTypes.at(summary.dtype);
    write_json(temporary / "config.json", json);
  });
  return summary;
}

}  // namespace draftsmith::recipes
