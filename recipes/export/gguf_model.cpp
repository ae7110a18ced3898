#include <array>
#include <stdexcept>

#include <fmt/format.h>

#include "model/layers/rotary.h"
#include "model/transformer/parameters.h"
#include "recipes/export/gguf.h"

namespace draftsmith::recipes {

namespace {

using model::TransformerConfig;
using Names = std::vector<std::pair<std::string, std::string>>;  // canonical, llama.cpp's

const Names kOutsideNames = {{"embedding", "token_embd"},
                             {"positions", "position_embd"},
                             {"decoder.final_norm", "output_norm"},
                             {"head", "output"}};
const Names kLayerNames = {{"self_attention.norm", "attn_norm"},     {"self_attention.query", "attn_q"},
                           {"self_attention.key", "attn_k"},         {"self_attention.value", "attn_v"},
                           {"self_attention.output", "attn_output"}, {"feed_forward.norm", "ffn_norm"},
                           {"feed_forward.gate", "ffn_gate"},        {"feed_forward.up", "ffn_up"},
                           {"feed_forward.down", "ffn_down"}};

// Returns llama.cpp's name of a module: "decoder.3.feed_forward.up" is "blk.3.ffn_up".
std::string module_name(const std::string& module) {
  for (const auto& [ours, theirs] : kOutsideNames) {
    if (module == ours) return theirs;
  }
  const size_t number = module.find('.') + 1;
  const size_t part = module.find('.', number) + 1;
  for (const auto& [ours, theirs] : kLayerNames) {
    if (module.substr(part) == ours) return fmt::format("blk.{}.{}", module.substr(number, part - 1 - number), theirs);
  }
  throw std::logic_error("gguf: no name for " + module);
}

bool is_llama(const TransformerConfig& config) {
  return config.family == "llama";
}

// Returns the type of a tensor's numbers in a file of a type.
GgufType type_in_file(const std::string& module, const std::vector<int64_t>& shape, GgufType file) {
  if (module == "positions" || shape.size() < 2) return GgufType::kF32;
  if (file == GgufType::kQ8_0 && shape.back() % kBlockValues != 0) return GgufType::kF16;
  return file;
}

// Adds the tensor of a parameter; queries, keys and values of a GPT-2 when the query's turn comes.
void add_tensor(const model::ParameterSpec& parameter, const TransformerConfig& config, GgufType type,
                std::vector<GgufTensor>& tensors) {
  const size_t dot = parameter.name.rfind('.');
  const std::string module = parameter.name.substr(0, dot);
  const std::string kind = parameter.name.substr(dot);  // ".weight" or ".bias"
  const bool query = module.ends_with(".query");
  const bool key = module.ends_with(".key");
  if (!is_llama(config) && (key || module.ends_with(".value"))) return;
  GgufTensor tensor{.name = module_name(module) + kind,
                    .shape = parameter.shape,
                    .type = type_in_file(module, parameter.shape, type),
                    .parameters = {parameter.name}};
  if (!is_llama(config) && query) {
    const std::string before = module.substr(0, module.rfind('.') + 1);
    tensor.name = fmt::format("{}qkv{}", module_name(module).substr(0, module_name(module).size() - 1), kind);
    tensor.shape.front() *= 3;
    tensor.parameters = {parameter.name, before + "key" + kind, before + "value" + kind};
  }
  if (is_llama(config) && query) tensor.rotated_heads = config.heads;
  if (is_llama(config) && key) tensor.rotated_heads = config.key_value_heads();
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

}  // namespace

void check_gguf(const std::string& where, const TransformerConfig& config, Problems& problems) {
  if (!is_llama(config) && config.family != "gpt2") {
    problems.add({.where = where,
                  .what = "GGUF is written for Llama and GPT-2 alone",
                  .expected = "a model of one of these families",
                  .found = config.family,
                  .hint = "--format hf exports it for Transformers"});
    return;
  }
  const model::Activation activation = is_llama(config) ? model::Activation::kSilu : model::Activation::kGeluTanh;
  if (config.activation != activation) {
    refuse(where, "one activation", is_llama(config) ? "silu" : "gelu_new", "another one", problems);
  }
  if (config.rotary.attention_factor != 1.0) {
    refuse(where, "its own attention factor of YaRN", "attention_factor 1.0 in rope_parameters",
           fmt::format("{}", config.rotary.attention_factor), problems);
  }
}

std::vector<GgufTensor> gguf_tensors(const TransformerConfig& config, GgufType type) {
  std::vector<GgufTensor> tensors;
  for (const auto& parameter : model::expected_parameters(config)) add_tensor(parameter, config, type, tensors);
  const at::Tensor factors = rope_factors(config);
  if (factors.defined()) tensors.push_back({.name = "rope_freqs.weight", .shape = factors.sizes().vec()});
  return tensors;
}

GgufValues gguf_settings(const TransformerConfig& config, const std::string& name, GgufType type) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::array<std::pair<GgufType, uint32_t>, 4> file_types = {
      {{GgufType::kF32, 0}, {GgufType::kF16, 1}, {GgufType::kQ8_0, 7}, {GgufType::kBF16, 32}}};
  GgufValues values = {{"general.architecture", config.family}, {"general.name", name}};
  for (const auto& [stored, file_type] : file_types) {
    if (stored == type) values.emplace_back("general.file_type", file_type);
  }
  values.emplace_back("general.quantization_version", uint32_t{2});
  const std::string family = config.family + ".";
  const auto add = [&](const char* key, GgufValue value) { values.emplace_back(family + key, std::move(value)); };
  add("context_length", number(config.max_positions));
  add("embedding_length", number(config.width));
  add("block_count", number(config.decoder_layers));
  add("feed_forward_length", number(config.ff_width));
  add("vocab_size", number(config.vocabulary));
  add("attention.head_count", number(config.heads));
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  if (!is_llama(config)) {
    add("attention.layer_norm_epsilon", epsilon);
    return values;
  }
  add("attention.head_count_kv", number(config.key_value_heads()));
  add("attention.key_length", number(config.head_width));
  add("attention.value_length", number(config.head_width));
  add("attention.layer_norm_rms_epsilon", epsilon);
  add("rope.dimension_count", number(config.rotary.width));
  add("rope.freq_base", static_cast<float>(config.rotary.base));
  if (config.rotary.scaling == model::RotaryScaling::kLinear) {
    add("rope.scaling.type", std::string("linear"));
    add("rope.scaling.factor", static_cast<float>(config.rotary.factor));
  }
  return values;
}

at::Tensor rope_factors(const TransformerConfig& config) {
  const model::RotaryScaling scaling = config.rotary.scaling;
  if (scaling != model::RotaryScaling::kLlama3 && scaling != model::RotaryScaling::kYarn) return {};
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
