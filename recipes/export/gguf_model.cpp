#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "model/layers/rotary.h"
#include "model/transformer/parameters.h"
#include "recipes/export/gguf.h"

namespace draftsmith::recipes {

namespace {

using model::TransformerConfig;
using Names = std::vector<std::pair<std::string, std::string>>;  // canonical, llama.cpp's

const Names kOutsideNames = {{"embedding", "token_embd"},
                             {"decoder.positions", "position_embd"},
                             {"decoder.final_norm", "output_norm"},
                             {"head", "output"}};
const Names kLayerNames = {{"self_attention.norm", "attn_norm"},       {"self_attention.query", "attn_q"},
                           {"self_attention.key", "attn_k"},           {"self_attention.value", "attn_v"},
                           {"self_attention.output", "attn_output"},   {"self_attention.query_norm", "attn_q_norm"},
                           {"self_attention.key_norm", "attn_k_norm"}, {"feed_forward.norm", "ffn_norm"},
                           {"feed_forward.gate", "ffn_gate"},          {"feed_forward.up", "ffn_up"},
                           {"feed_forward.down", "ffn_down"}};

// Names and abilities that llama.cpp has for a family.
struct GgufFamily {
  std::string_view family, architecture;
  bool pairs = false;         // queries and keys are rotated by neighbouring numbers, not by halves
  bool biases = false;        // the output projection and feed-forward layers may have biases
  bool norms_behind = false;  // norms stand behind the sublayers
  bool joined = false;        // query, key and value are one tensor, and so are gate and up
  bool needs_head = false;    // a tied head is stored, too
};
constexpr GgufFamily kFamilies[] = {
    {.family = "llama", .architecture = "llama", .pairs = true, .biases = true},
    {.family = "mistral", .architecture = "llama", .pairs = true},
    {.family = "granite", .architecture = "granite", .pairs = true, .biases = true},
    {.family = "smollm3", .architecture = "smollm3", .pairs = true},
    {.family = "qwen2", .architecture = "qwen2"},
    {.family = "qwen3", .architecture = "qwen3"},
    {.family = "olmo2", .architecture = "olmo2", .norms_behind = true, .needs_head = true},
    {.family = "phi3", .architecture = "phi3", .joined = true},
    {.family = "gpt2", .architecture = "gpt2", .biases = true, .joined = true}};
constexpr int64_t kSmolLm3Pause = 4;  // of its layers, each fourth does not rotate

// Returns the row of a model's family; nullptr: it has no form in GGUF.
const GgufFamily* find_family(const TransformerConfig& config) {
  const auto* found = std::ranges::find(kFamilies, config.family, &GgufFamily::family);
  return found == std::end(kFamilies) ? nullptr : found;
}

// Returns llama.cpp's name of a module: "decoder.3.feed_forward.up" is "blk.3.ffn_up".
std::string module_name(const std::string& module, bool norms_behind) {
  for (const auto& [ours, theirs] : kOutsideNames) {
    if (module == ours) return theirs;
  }
  const size_t number = module.find('.') + 1;
  const size_t part = module.find('.', number) + 1;
  const std::string layer = fmt::format("blk.{}.", module.substr(number, part - 1 - number));
  if (norms_behind && module.ends_with("attention.norm")) return layer + "post_attention_norm";
  if (norms_behind && module.ends_with("forward.norm")) return layer + "post_ffw_norm";
  for (const auto& [ours, theirs] : kLayerNames) {
    if (module.substr(part) == ours) return layer + theirs;
  }
  throw std::logic_error("gguf: no name for " + module);
}

bool is_gpt2(const TransformerConfig& config) {
  return config.family == "gpt2";
}

// Returns the type of a tensor's numbers in a file of a type.
GgufType type_in_file(const std::string& module, const std::vector<int64_t>& shape, GgufType file) {
  if (module == "decoder.positions" || shape.size() < 2) return GgufType::kF32;
  if (file == GgufType::kQ8_0 && shape.back() % kBlockValues != 0) return GgufType::kF16;
  return file;
}

// Adds the tensor of a parameter; joined ones when the turn of the query or of the gate comes.
void add_tensor(const model::ParameterSpec& parameter, const TransformerConfig& config, GgufType type,
                std::vector<GgufTensor>& tensors) {
  const size_t dot = parameter.name.rfind('.');
  const std::string module = parameter.name.substr(0, dot);
  const std::string kind = parameter.name.substr(dot);  // ".weight" or ".bias"
  const bool query = module.ends_with(".query");
  const bool key = module.ends_with(".key");
  const GgufFamily& family = *find_family(config);
  if (family.joined && (key || module.ends_with(".value") || (config.gated && module.ends_with(".up")))) return;
  const std::string name = module_name(module, family.norms_behind);
  GgufTensor tensor{.name = name + kind,
                    .shape = parameter.shape,
                    .type = type_in_file(module, parameter.shape, type),
                    .parameters = {parameter.name}};
  const std::string before = module.substr(0, module.rfind('.') + 1);
  if (family.joined && query) {
    tensor.name = fmt::format("{}qkv{}", name.substr(0, name.size() - 1), kind);
    tensor.shape.front() += 2 * config.key_value_heads() * config.head_width;
    tensor.parameters = {parameter.name, before + "key" + kind, before + "value" + kind};
  }
  if (family.joined && module.ends_with(".gate")) {
    tensor.name = module_name(before + "up", family.norms_behind) + kind;
    tensor.shape.front() *= 2;
    tensor.parameters = {parameter.name, before + "up" + kind};
  }
  if (family.pairs && query) tensor.rotated_heads = config.heads;
  if (family.pairs && key) tensor.rotated_heads = config.key_value_heads();
  tensors.push_back(std::move(tensor));
}

// Makes pairs of the halves of each head's rows: [h,2,K/2,...] becomes [h,K/2,2,...].
at::Tensor paired(const at::Tensor& rows, int64_t heads) {
  const auto sizes = rows.sizes().vec();
  std::vector<int64_t> split = {heads, 2, sizes[0] / heads / 2};
  split.insert(split.end(), sizes.begin() + 1, sizes.end());
  return rows.reshape(split).transpose(1, 2).reshape(sizes);
}

void refuse(const std::string& where, const std::string& what, const std::string& expected, const std::string& found,
            Problems& problems) {
  problems.add({.where = where,
                .what = "llama.cpp's model of this family has " + what,
                .expected = expected,
                .found = found,
                .hint = "--format hf exports it for Transformers"});
}

void check_rotation(const std::string& where, const TransformerConfig& config, const GgufFamily& family,
                    Problems& problems) {
  using enum model::RotaryScaling;
  const model::RotaryConfig& rotary = config.rotary;
  const bool stretches = rotary.scaling == kLlama3 && family.architecture == "llama";
  if (rotary.scaling == kDynamic || (rotary.scaling == kLlama3 && !stretches)) {
    refuse(where, "rotation that is not scaled in this way", "rope_type default, linear or yarn", "another one",
           problems);
  }
  const double usual = rotary.scaling == kYarn ? 0.1 * std::log(rotary.factor) + 1.0 : 1.0;
  if (std::abs(rotary.attention_factor - usual) > 1e-6) {
    refuse(where, "its own attention factor of YaRN", fmt::format("attention_factor {} in rope_parameters", usual),
           fmt::format("{}", rotary.attention_factor), problems);
  }
  if (rotary.scaling == kYarn && !rotary.whole_pairs) {
    refuse(where, "ramps of YaRN between whole pairs alone", "\"truncate\": true in rope_parameters", "false",
           problems);
  }
  if (config.family != "smollm3") return;
  std::vector<int64_t> pauses;
  for (int64_t layer = kSmolLm3Pause; layer <= config.decoder_layers; layer += kSmolLm3Pause) {
    pauses.push_back(layer - 1);
  }
  if (config.unrotated_layers == pauses) return;
  refuse(where, "rotation in all layers but each fourth", "\"no_rope_layer_interval\": 4", "other no_rope_layers",
         problems);
}

}  // namespace

void check_gguf(const std::string& where, const TransformerConfig& config, Problems& problems) {
  const GgufFamily* family = find_family(config);
  if (family == nullptr) {
    problems.add({.where = where,
                  .what = "GGUF is not written for this family",
                  .expected = "a model of llama, mistral, granite, smollm3, qwen2, qwen3, olmo2, phi3 or gpt2",
                  .found = config.family,
                  .hint = "--format hf exports it for Transformers"});
    return;
  }
  const model::Activation activation = is_gpt2(config) ? model::Activation::kGeluTanh : model::Activation::kSilu;
  if (config.activation != activation) {
    refuse(where, "one activation", is_gpt2(config) ? "gelu_new" : "silu", "another one", problems);
  }
  if ((config.output_bias || config.feed_forward_bias) && !family->biases) {
    refuse(where, "no biases behind attention or in feed-forward layers",
           "\"attention_bias\": false and \"mlp_bias\": false", "biases", problems);
  }
  if (!config.window_layers.empty()) {
    refuse(where, "no windows of attention",
           fmt::format("\"max_position_embeddings\": {0} at most, which the window does not cut", config.window),
           fmt::format("a window of {}", config.window), problems);
  }
  if (config.family == "phi3" && config.heads * config.head_width != config.width) {
    refuse(where, "heads that make up the width", fmt::format("a head_dim of {} / {}", config.width, config.heads),
           std::to_string(config.head_width), problems);
  }
  check_rotation(where, config, *family, problems);
}

std::vector<GgufTensor> gguf_tensors(const TransformerConfig& config, GgufType type) {
  std::vector<GgufTensor> tensors;
  for (const auto& parameter : model::expected_parameters(config)) add_tensor(parameter, config, type, tensors);
  if (config.tied_head && find_family(config)->needs_head) {
    tensors.push_back(tensors.front());  // the embedding
    tensors.back().name = "output.weight";
  }
  const at::Tensor factors = rope_factors(config);
  if (factors.defined()) tensors.push_back({.name = "rope_freqs.weight", .shape = factors.sizes().vec()});
  return tensors;
}

GgufValues gguf_settings(const TransformerConfig& config, const std::string& name, GgufType type) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::array<std::pair<GgufType, uint32_t>, 4> file_types = {
      {{GgufType::kF32, 0}, {GgufType::kF16, 1}, {GgufType::kQ8_0, 7}, {GgufType::kBF16, 32}}};
  const std::string architecture(find_family(config)->architecture);
  GgufValues values = {{"general.architecture", architecture}, {"general.name", name}};
  for (const auto& [stored, file_type] : file_types) {
    if (stored == type) values.emplace_back("general.file_type", file_type);
  }
  values.emplace_back("general.quantization_version", uint32_t{2});
  const auto add = [&](const char* key, GgufValue value) {
    values.emplace_back(architecture + "." + key, std::move(value));
  };
  add("context_length", number(config.max_positions));
  add("embedding_length", number(config.width));
  add("block_count", number(config.decoder_layers));
  add("feed_forward_length", number(config.ff_width));
  add("vocab_size", number(config.vocabulary));
  add("attention.head_count", number(config.heads));
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  if (is_gpt2(config)) {
    add("attention.layer_norm_epsilon", epsilon);
    return values;
  }
  add("attention.head_count_kv", number(config.key_value_heads()));
  add("attention.key_length", number(config.head_width));
  add("attention.value_length", number(config.head_width));
  add("attention.layer_norm_rms_epsilon", epsilon);
  add("rope.dimension_count", number(config.rotary.width));
  add("rope.freq_base", static_cast<float>(config.rotary.base));
  const bool yarn = config.rotary.scaling == model::RotaryScaling::kYarn;
  if (yarn || config.rotary.scaling == model::RotaryScaling::kLinear) {
    add("rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
    add("rope.scaling.factor", static_cast<float>(config.rotary.factor));
  }
  if (yarn) {
    add("rope.scaling.original_context_length", number(config.rotary.original_positions));
    add("rope.scaling.yarn_beta_fast", static_cast<float>(config.rotary.fast_turns));
    add("rope.scaling.yarn_beta_slow", static_cast<float>(config.rotary.slow_turns));
  }
  if (config.family == "phi3") {
    add("rope.scaling.original_context_length", number(config.max_positions));
    add("attention.sliding_window", number(0));  // none
  }
  if (config.family == "granite") {
    add("attention.scale", static_cast<float>(config.attention_scale));
    add("embedding_scale", static_cast<float>(config.embedding_scale));
    add("residual_scale", static_cast<float>(config.residual_scale));
    add("logit_scale", static_cast<float>(1.0 / config.output_scale));  // a divisor
  }
  return values;
}

at::Tensor rope_factors(const TransformerConfig& config) {
  if (config.rotary.scaling != model::RotaryScaling::kLlama3) return {};
  model::RotaryConfig plain = config.rotary;
  plain.scaling = model::RotaryScaling::kNone;
  return model::rotary_frequencies(plain).div(model::rotary_frequencies(config.rotary)).to(at::kFloat);
}

at::Tensor to_gguf(const GgufTensor& tensor, const model::TransformerModel& model) {
  if (tensor.parameters.empty()) return rope_factors(model.config());
  std::vector<at::Tensor> parts;
  for (const std::string& name : tensor.parameters) {
    parts.push_back(model.parameters().at(name).detach().to(at::kCPU, at::kFloat));
  }
  const at::Tensor joined = parts.size() == 1 ? parts[0] : at::cat(parts, 0);
  return (tensor.rotated_heads == 0 ? joined : paired(joined, tensor.rotated_heads)).contiguous();
}

}  // namespace draftsmith::recipes
