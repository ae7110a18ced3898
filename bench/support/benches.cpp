#include "bench/support/benches.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/random_tensors.h"
#include "model/families/family.h"
#include "model/layers/parameter_source.h"
#include "model/transformer/parameters.h"

namespace draftsmith::bench {
namespace {

using model::TransformerConfig;

// A model's family and sizes, named as in TransformerConfig.
struct Shape {
  const char* name;
  const char* family;
  int64_t vocabulary, width, heads, kv_heads, head_width, ff_width, encoder_layers, decoder_layers;
  bool tied_head = true;
};

constexpr Shape kShapes[] = {{"t5-small", "t5", 32128, 512, 8, 0, 64, 2048, 6, 6},
                             {"t5-base", "t5", 32128, 768, 12, 0, 64, 3072, 12, 12},
                             {"t5-large", "t5", 32128, 1024, 16, 0, 64, 4096, 24, 24},
                             {"llama-1b", "llama", 128256, 2048, 32, 8, 64, 8192, 0, 16},
                             {"llama-8b", "llama", 128256, 4096, 32, 8, 128, 14336, 0, 32, false},
                             {"marian", "marian", 58101, 512, 8, 0, 64, 2048, 6, 6},
                             {"bart-base", "bart", 50265, 768, 12, 0, 64, 3072, 6, 6},
                             {"qwen3-0.6b", "qwen3", 151936, 1024, 16, 8, 128, 3072, 0, 28},
                             {"tiny-t5", "t5", 96, 32, 2, 0, 16, 64, 1, 2},
                             {"tiny-t5-drafter", "t5", 96, 16, 2, 0, 16, 32, 1, 1},
                             {"tiny-llama", "llama", 96, 32, 2, 0, 16, 64, 0, 2}};

TransformerConfig config_of(const Shape& shape) {
  const model::Family& family = model::families().at(shape.family);
  TransformerConfig config = family.base;
  config.vocabulary = shape.vocabulary;
  config.width = shape.width;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_width = shape.head_width;
  config.ff_width = shape.ff_width;
  config.encoder_layers = shape.encoder_layers;
  config.decoder_layers = shape.decoder_layers;
  config.tied_head = shape.tied_head;
  config.eos = {};
  model::derive_from_sizes(family, config);
  if (config.t5_like()) {
    config.output_scale = 1 / std::sqrt(static_cast<double>(shape.width));
  } else {
    config.max_positions = config.encoder_decoder ? 1024 : 8192;
  }
  return config;
}

constexpr int64_t kBlock = 1'000'003;  // a prime

// Returns the numbers that all others repeat, fp32 on the CPU.
const at::Tensor& block_on_host() {
  static const at::Tensor block = normal_tensor({kBlock}, 1.0, 1, "bench", at::kFloat);
  return block;
}

std::map<std::string, at::Tensor> random_parameters(const TransformerConfig& config, at::Device device,
                                                    at::ScalarType type) {
  const RandomNumbers numbers(device);
  std::map<std::string, at::Tensor> parameters;
  for (const model::ParameterSpec& spec : model::expected_parameters(config)) {
    const auto [mean, deviation] = model::initial_values(spec, config);
    const at::ScalarType own = model::parameter_dtype(config, spec.name, type);
    parameters[spec.name] = deviation == 0 ? at::full(spec.shape, mean, at::TensorOptions(device).dtype(own))
                                           : numbers.normal(spec.name, spec.shape, deviation, own);
  }
  return parameters;
}

}  // namespace

TransformerConfig shape_config(const std::string& name) {
  std::string known;
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return config_of(shape);
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw UserError({"--shapes", "unknown shape", known, "'" + name + "'", ""});
}

RandomNumbers::RandomNumbers(at::Device device) : block_(block_on_host().to(device)) {}

at::Tensor RandomNumbers::normal(const std::string& name, at::IntArrayRef shape, double deviation,
                                 at::ScalarType type) const {
  at::Tensor numbers = at::empty(shape, block_.options().dtype(type));
  const at::Tensor flat = numbers.view({-1});
  const int64_t whole = flat.numel() / kBlock;
  const int64_t rest = flat.numel() - whole * kBlock;
  const int64_t used = std::min(flat.numel(), kBlock);
  const auto first = static_cast<int64_t>(stream_of(name) % static_cast<uint64_t>(kBlock));
  const at::Tensor scaled = block_.roll(-first).narrow(0, 0, used).mul_(deviation).to(type);
  if (whole > 0) flat.narrow(0, 0, whole * kBlock).view({whole, kBlock}).copy_(scaled);
  flat.narrow(0, whole * kBlock, rest).copy_(scaled.narrow(0, 0, rest));
  return numbers;
}

std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type) {
  const at::NoGradGuard no_gradients;
  const std::map<std::string, at::Tensor> parameters = random_parameters(config, device, type);
  model::GivenParameters source(parameters);
  return std::make_unique<model::TransformerModel>(config, source);
}

std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device) {
  auto made = std::make_unique<model::TransformerModel>(config, random_parameters(config, device, at::kFloat));
  made->requires_grad(true);
  return made;
}

Records::Records(std::filesystem::path file, nlohmann::ordered_json common)
    : file_(std::move(file)), common_(std::move(common)) {}

void Records::add(const std::string& measure, const nlohmann::ordered_json& values) {
  nlohmann::ordered_json record{{"measure", measure}};
  record.update(common_);
  record.update(values);
  const DeviceExecution now = device_execution();
  DeviceExecution since = now;
  since.kernel_launches -= before_.kernel_launches;
  since.replays -= before_.replays;
  record.update(execution_json(since));
  before_ = now;
  fmt::print("{}\n", record.dump());
  std::fflush(stdout);
  all_.push_back(std::move(record));
  if (!file_.empty()) write_json(file_, {{"environment", environment()}, {"records", all_}});
}

bool Records::guard(const std::string& setting, const std::function<bool()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    add("problem", {{"shape", setting}, {"problem", text.substr(0, text.find('\n'))}});
    return false;
  }
}

}  // namespace draftsmith::bench
