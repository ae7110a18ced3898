#include "model/models/router.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/random_tensors.h"
#include "base/utf8.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

Shapes expected_shapes(const RouterConfig& config) {
  return {{"scalars.weight", {config.hidden, 1 + config.top_k}},
          {"embeddings.weight", {config.hidden, config.top_k * config.width}},
          {"hidden.bias", {config.hidden}},
          {"output.weight", {config.hidden}},
          {"output.bias", {1}}};
}

// Returns the factor of entropies in nats: 1 / ln V.
double entropy_unit(const RouterConfig& config) {
  return 1 / std::log(std::max<double>(2, static_cast<double>(config.vocabulary)));
}

// Keeps its parameters on the device, so that decisions there copy none.
Router copy_on(at::Device device, const Router& router) {
  auto parameters = router.parameters();
  for (auto& entry : parameters) entry.second = entry.second.detach().to(device);
  return {router.config(), std::move(parameters), "router"};
}

std::vector<float> to_vector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

}  // namespace

Router::Router(RouterConfig config, uint64_t seed) : config_(std::move(config)) {
  const auto inputs = static_cast<double>(config_.top_k * config_.width);
  for (const auto& [name, shape] : expected_shapes(config_)) {
    const bool bias = name.ends_with(".bias");
    // He's initialisation of each group of inputs by itself; the outputs begin near one half.
    const double fan = name == "embeddings.weight" ? inputs : static_cast<double>(shape.back());
    parameters_[name] = bias ? at::zeros(shape, at::kFloat)
                             : normal_tensor(shape, std::sqrt(1 / fan), seed, "router/" + name, at::kFloat);
  }
}

Router::Router(RouterConfig config, std::map<std::string, at::Tensor> parameters, const std::string& where)
    : config_(std::move(config)), parameters_(std::move(parameters)) {
  Problems problems;
  check_shapes(expected_shapes(config_), shapes_of(parameters_), where, "train the router again", problems);
  for (const auto& [name, value] : parameters_) {
    if (at::isfinite(value).all().item<bool>()) continue;
    problems.add({where, "the tensor " + printable(name) + " holds NaN or infinity", "numbers", "NaN or infinity",
                  "train the router again"});
  }
  problems.throw_if_any();
}

at::Tensor Router::logits(const RouterFeatures& features, const at::Tensor& embeddings) const {
  const at::Tensor known = features.ids.ge(0).unsqueeze(2).to(embeddings.scalar_type());                  // [N,k,1]
  const at::Tensor inputs = (embeddings * known).flatten(1) * config_.embedding_scale;                    // [N,k*D]
  return logits_of(features, inputs.matmul(parameters_.at("embeddings.weight").t().to(inputs.dtype())));  // [N,H]
}

at::Tensor Router::logits_of(const RouterFeatures& features, const at::Tensor& products) const {
  const auto type = products.scalar_type();
  const auto parameter = [&](const char* name) { return parameters_.at(name).to(products.device(), type); };
  const std::vector<at::Tensor> scalars{features.entropy.to(type).unsqueeze(1) * entropy_unit(config_),
                                        features.probabilities.to(type)};
  const at::Tensor hidden =  // of scalars [N,1+k]
      at::relu(at::cat(scalars, 1).matmul(parameter("scalars.weight").t()) + products +
               parameter("hidden.bias"));  // [N,H]
  return hidden.matmul(parameter("output.weight")) + parameter("output.bias");
}

RouterPredictor::RouterPredictor(const Router& router, const TransformerModel& drafter, int64_t table_bytes)
    : router_(copy_on(drafter.info().device, router)), drafter_(drafter) {
  const DecodingGuard guard;
  const RouterConfig& config = router_.config();
  if (config.width != drafter.config().width || config.vocabulary > drafter.config().vocabulary) {
    throw UserError({"router", "was trained for a drafter of another width or vocabulary",
                     fmt::format("width {}, {} ids", config.width, config.vocabulary),
                     fmt::format("width {}, {} ids", drafter.config().width, drafter.config().vocabulary), ""});
  }
  const at::Device device = drafter.info().device;
  const auto& parameters = router_.parameters();
  for (int64_t slot = 0; slot < config.top_k; ++slot) {
    const at::Tensor weight = parameters.at("embeddings.weight").narrow(1, slot * config.width, config.width);  // [H,D]
    slots_.push_back(weight * config.embedding_scale);
  }
  scalar_weights_ = to_vector(parameters.at("scalars.weight").t());
  for (int64_t h = 0; h < config.hidden; ++h) {  // entropies come in nats
    float& weight = scalar_weights_[static_cast<size_t>(h)];
    weight = static_cast<float>(weight * entropy_unit(config));
  }
  bias_ = to_vector(parameters.at("hidden.bias"));
  output_ = to_vector(parameters.at("output.weight"));
  output_bias_ = to_vector(parameters.at("output.bias")).front();
  const int64_t numbers = config.vocabulary * config.top_k * config.hidden;
  if (!device.is_cpu() || numbers * static_cast<int64_t>(sizeof(float)) > table_bytes) return;
  table_ = at::empty({config.vocabulary, config.top_k, config.hidden}, at::kFloat);
  constexpr int64_t kAtOnce = 8192;  // tokens, so that the embedding table is never copied whole
  for (int64_t first = 0; first < config.vocabulary; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, config.vocabulary - first);
    const at::Tensor rows = drafter.token_embeddings(at::arange(first, first + count, at::kLong));  // [n,D]
    for (int64_t slot = 0; slot < config.top_k; ++slot) {
      table_.narrow(0, first, count).select(1, slot).copy_(rows.matmul(slots_[static_cast<size_t>(slot)].t()));
    }
  }
}

at::Tensor RouterPredictor::embeddings(const at::Tensor& ids) const {
  return drafter_.token_embeddings(ids.clamp(0, config().vocabulary - 1));
}

double RouterPredictor::disagreement(double entropy, std::span<const float> probabilities,
                                     std::span<const int64_t> ids) const {
  const RouterConfig& config = router_.config();
  const auto hidden = static_cast<size_t>(config.hidden);
  std::vector<float> sums = bias_;  // [H]
  const auto add = [&](const float* row, float factor) {
    for (size_t h = 0; h < hidden; ++h) sums[h] += factor * row[h];
  };
  add(scalar_weights_.data(), static_cast<float>(entropy));
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    add(scalar_weights_.data() + (slot + 1) * hidden, probabilities[slot]);
    if (ids[slot] < 0 || ids[slot] >= config.vocabulary) continue;
    if (table_.defined()) {
      const int64_t row = ids[slot] * config.top_k + static_cast<int64_t>(slot);
      add(table_.const_data_ptr<float>() + row * config.hidden, 1);
    } else {
      const at::Tensor product = slots_[slot].matmul(embeddings(at::scalar_tensor(ids[slot], at::kLong)));  // [H]
      add(product.const_data_ptr<float>(), 1);
    }
  }
  float logit = output_bias_;
  for (size_t h = 0; h < hidden; ++h) logit += output_[h] * std::max(sums[h], 0.0F);
  return 1 / (1 + std::exp(-static_cast<double>(logit)));
}

at::Tensor RouterPredictor::disagreement(const RouterFeatures& features) const {
  const DecodingGuard guard;
  const at::Device device = slots_.front().device();
  const RouterFeatures here{features.entropy.to(device), features.probabilities.to(device), features.ids.to(device)};
  const at::Tensor rows = embeddings(here.ids);                                                 // [N,k,D]
  const at::Tensor known = (here.ids.ge(0) & here.ids.lt(config().vocabulary)).to(at::kFloat);  // [N,k]
  at::Tensor products = at::zeros({here.ids.size(0), config().hidden}, rows.options());
  for (int64_t slot = 0; slot < config().top_k; ++slot) {
    const at::Tensor product = rows.select(1, slot).matmul(slots_[static_cast<size_t>(slot)].t());  // [N,H]
    products += product * known.select(1, slot).unsqueeze(1);
  }
  return at::sigmoid(router_.logits_of(here, products));
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kRouterKind = "draftsmith_router";
constexpr int64_t kRouterVersion = 1;

void router_keys(ConfigKeys& keys, RouterConfig& config) {
  keys.also("architectures", nlohmann::ordered_json::array({"DraftsmithRouter"}));
  keys.also("model_type", kRouterKind);
  keys.also("format_version", kRouterVersion);
  keys.integer("top_k", config.top_k, {1, kMostRouterTokens});
  keys.integer("hidden", config.hidden, {1, kMostRouterHidden});
  keys.integer("drafter_width", config.width, {1, 1 << 20});
  keys.integer("vocabulary", config.vocabulary, {1, 1 << 24});
  keys.number("embedding_scale", config.embedding_scale, 0.0, 1e-12, 1e12);
  keys.text("drafter", config.drafter, "");
  keys.text("drafter_sha256", config.drafter_hash, "");
  keys.number("threshold", config.threshold, -1.0, 0.0, 2.0);
  keys.integer("max_draft", config.max_draft, {1, kMostRouterDraft});
}

RouterConfig read_router_config(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  const nlohmann::json root = load_json(file);
  Problems problems;
  ConfigReader values(root, file.string(), problems);
  const std::string kind = values.get_string("model_type", "");
  if (kind != kRouterKind) {
    throw UserError({file.string(), "is not the config.json of a router", std::string("model_type ") + kRouterKind,
                     kind.empty() ? "no model_type" : printable(kind), "a router is made by a stage of kind router"});
  }
  const int64_t version = values.get_int("format_version", {0, INT32_MAX}, 0);
  if (version != kRouterVersion) {
    throw UserError({file.string(), "the router has another format version", std::to_string(kRouterVersion),
                     std::to_string(version), "train the router again"});
  }
  RouterConfig config;
  ConfigKeys keys(values);
  router_keys(keys, config);
  if (config.top_k > config.vocabulary) values.wrong("top_k", "is more than the drafter's ids", "at most vocabulary");
  if (!is_hash(config.drafter_hash)) {
    problems.add(
        {file.string(), "'drafter_sha256' is not a hash", "64 hex digits", printable(config.drafter_hash), ""});
  }
  problems.throw_if_any();
  return config;
}

}  // namespace

void save_router(const fs::path& directory, const Router& router) {
  write_new_directory(directory, [&](const fs::path& temporary) {
    std::vector<TensorToStore> tensors;
    for (const auto& [name, value] : router.parameters()) tensors.push_back({name, value.detach().cpu(), at::kFloat});
    write_safetensors(temporary / "model.safetensors", std::move(tensors));
    nlohmann::ordered_json json;
    ConfigKeys keys(json, true);
    RouterConfig config = router.config();
    router_keys(keys, config);
    write_json(temporary / "config.json", json);
  });
}

Router load_router(const fs::path& directory) {
  if (!fs::is_directory(directory) || !fs::exists(directory / "config.json")) {
    throw UserError({directory.string(), "is not a router directory",
                     "a directory with config.json and model.safetensors",
                     fs::is_directory(directory) ? "no config.json" : "no such directory",
                     "a router is made by a stage of kind router"});
  }
  RouterConfig config = read_router_config(directory);
  const SafetensorsFile file(directory / "model.safetensors");
  std::map<std::string, at::Tensor> parameters;
  for (const auto& entry : file.tensors())
    parameters[entry.first] = file.stored(entry.first).to(at::kFloat, false, true);
  return {std::move(config), std::move(parameters), file.file().string()};
}

bool is_router(const fs::path& directory) {
  if (!fs::is_regular_file(directory / "config.json")) return false;
  try {
    const nlohmann::json root = load_json(directory / "config.json");
    return root.is_object() && root.contains("model_type") && root.at("model_type") == kRouterKind;
  } catch (const UserError&) {
    return false;
  }
}

std::string describe_router(const Router& router) {
  const RouterConfig& config = router.config();
  int64_t numbers = 0;
  for (const auto& entry : router.parameters()) numbers += entry.second.numel();
  std::string text =
      fmt::format("router: {} numbers, hidden width {}, top {} tokens\n", numbers, config.hidden, config.top_k);
  text += fmt::format("  drafter        {} (width {}, vocabulary {}), sha256 {}\n", printable(config.drafter),
                      config.width, config.vocabulary, config.drafter_hash.substr(0, 16));
  return text + fmt::format("  defaults       threshold {:g}, max_draft {}\n", config.threshold, config.max_draft);
}

void require_router_fits(const Router& router, const fs::path& directory, const fs::path& drafter) {
  const RouterConfig& config = router.config();
  const std::string hash = model_hash(drafter);
  if (hash == config.drafter_hash) return;
  throw UserError({"router " + directory.string(), "the router was trained for another drafter",
                   fmt::format("{} (sha256 {})", printable(config.drafter), config.drafter_hash.substr(0, 16)),
                   fmt::format("{} (sha256 {})", drafter.string(), hash.substr(0, 16)),
                   "train a router for this drafter: stages router-data and router"});
}

}  // namespace draftsmith::model
