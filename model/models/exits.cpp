#include "model/models/exits.h"

#include <cmath>

#include <fmt/format.h>

#include "base/random_tensors.h"
#include "model/files/model_directory.h"
#include "model/files/weight_files.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {
namespace {

// Returns the name of a part of an exit among the parameters.
std::string parameter_name(int64_t layer, const char* part) {
  return fmt::format("exit.{}.{}", layer, part);
}

// Initial values of a parameter.
enum class Start { kFinalNorm, kModelHead, kZero, kRandom };

struct ExitParameter {
  const char* part;
  std::vector<int64_t> shape;
  Start start;
};

std::vector<ExitParameter> parts_of(const ExitShape& exit, const TransformerConfig& config) {
  const int64_t rows = config.vocabulary_rows();
  std::vector<ExitParameter> parts;
  if (exit.own_norm) parts.push_back({"norm.weight", {config.width}, Start::kFinalNorm});
  if (exit.own_norm && config.norm == Norm::kLayer) parts.push_back({"norm.bias", {config.width}, Start::kFinalNorm});
  if (exit.head == ExitHead::kFull) parts.push_back({"head.weight", {rows, config.width}, Start::kModelHead});
  if (exit.head == ExitHead::kLowRank) {
    parts.push_back({"head.down", {exit.rank, config.width}, Start::kRandom});
    parts.push_back({"head.up", {rows, exit.rank}, Start::kZero});
  }
  return parts;
}

at::Tensor initial_value(const ExitParameter& parameter, const std::string& name, const TransformerModel& model,
                         uint64_t seed) {
  const at::Tensor& head = head_weight(model);
  const at::TensorOptions options = head.options().requires_grad(false);
  switch (parameter.start) {
    case Start::kFinalNorm:
      return model.parameters().at(std::string("decoder.final_") + parameter.part).detach().clone();
    case Start::kModelHead:
      return head.detach().clone();
    case Start::kZero:
      return at::zeros(parameter.shape, options);
    case Start::kRandom:
      return normal_tensor(parameter.shape, 1 / std::sqrt(static_cast<double>(model.config().width)), seed,
                           "init/" + name, options);
  }
  throw std::logic_error("initial_value: unknown start");
}

Shapes exit_shapes(const ExitConfig& exits, const TransformerConfig& config) {
  Shapes expected;
  for (const ExitShape& exit : exits.exits) {
    for (const ExitParameter& parameter : parts_of(exit, config)) {
      expected[parameter_name(exit.layer, parameter.part)] = parameter.shape;
    }
  }
  return expected;
}

}  // namespace

void check_exits(const ExitConfig& exits, const TransformerConfig& config, const std::string& where,
                 Problems& problems) {
  const auto wrong = [&](const std::string& what, const std::string& expected, const std::string& found) {
    problems.add({.where = where, .what = what, .expected = expected, .found = found});
  };
  if (const ModelKind& kind = kind_of(config); kind != ordinary_kind()) {
    wrong("exits are read from models that predict the next token by themselves", "an ordinary model", kind.name);
  }
  if (exits.exits.empty()) wrong("there are no exits", "at least one", "none");
  int64_t before = 0;
  for (const ExitShape& exit : exits.exits) {
    const std::string layer = std::to_string(exit.layer);
    if (exit.layer < 1 || exit.layer > config.decoder_layers) {
      wrong("an exit lies outside the model", fmt::format("a layer in 1..{}", config.decoder_layers), layer);
    } else if (exit.layer <= before) {
      wrong(exit.layer == before ? "an exit is given twice" : "exits are out of order", "rising layers, each once",
            fmt::format("{} after {}", layer, before));
    }
    before = std::max(before, exit.layer);
    const int64_t most = std::min(config.width, config.vocabulary_rows());
    if (exit.head == ExitHead::kLowRank && (exit.rank < 1 || exit.rank > most)) {
      wrong(fmt::format("the rank of the exit at layer {} is out of range", layer), fmt::format("1 to {}", most),
            std::to_string(exit.rank));
    }
    if (exit.own_norm && !config.final_norm) {
      wrong(fmt::format("the exit at layer {} has a norm, which begins as the model's last one", layer),
            "own_norm = false: this model ends without a norm", "own_norm = true");
    }
  }
}

Exits::Exits(ExitConfig config, const TransformerModel& model, uint64_t seed)
    : config_(std::move(config)), model_(model.config()) {
  throw_problems_of(check_exits, config_, model_, "exits");
  const at::NoGradGuard no_gradients;
  for (const ExitShape& exit : config_.exits) {
    for (const ExitParameter& parameter : parts_of(exit, model_)) {
      const std::string name = parameter_name(exit.layer, parameter.part);
      parameters_[name] = initial_value(parameter, name, model, seed);
    }
  }
}

Exits::Exits(ExitConfig config, const TransformerConfig& model, std::map<std::string, at::Tensor> parameters,
             const std::string& where)
    : config_(std::move(config)), model_(model), parameters_(std::move(parameters)) {
  throw_problems_of(check_exits, config_, model_, "exits");
  throw_problems_of(check_shapes, exit_shapes(config_, model_), shapes_of(parameters_), where, "train the exits again");
}

const at::Tensor& head_weight(const TransformerModel& model) {
  return model.parameters().at(head_parameter(model.config()));
}

HeadWeights own_head(const TransformerModel& model) {
  return {.weight = head_weight(model), .bias = model.head_bias(), .cap = model.config().logit_cap};
}

std::vector<at::Tensor> HeadWeights::multiplied(const at::Tensor& input) const {
  if (!up.defined()) return {input};
  if (down.defined()) return {input, at::linear(input, down)};
  return input.split_with_sizes({weight.size(1), up.size(1)}, -1);
}

const ExitShape* Exits::find(int64_t layer) const {
  for (const ExitShape& exit : config_.exits) {
    if (exit.layer == layer) return &exit;
  }
  return nullptr;
}

bool Exits::reads_as_model(int64_t layer) const {
  const ExitShape* exit = find(layer);
  return exit == nullptr || (exit->head == ExitHead::kShared && !exit->own_norm);
}

at::Tensor Exits::finish(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const {
  const ExitShape* exit = find(layer);
  if (exit == nullptr || !exit->own_norm) return model.finish(hidden);
  const auto bias = parameters_.find(parameter_name(layer, "norm.bias"));
  const NormLayer norm(model_.norm, model_.norm_epsilon, parameters_.at(parameter_name(layer, "norm.weight")),
                       bias == parameters_.end() ? at::Tensor() : bias->second);
  const at::Tensor normed = norm(hidden);
  return model_.output_scale == 1.0 ? normed : normed * model_.output_scale;
}

HeadWeights Exits::head(const TransformerModel& model, int64_t layer) const {
  const ExitShape* exit = find(layer);
  HeadWeights head = own_head(model);
  if (exit == nullptr || exit->head == ExitHead::kShared) return head;
  if (exit->head == ExitHead::kFull) {
    head.weight = parameters_.at(parameter_name(layer, "head.weight"));
    return head;
  }
  head.down = parameters_.at(parameter_name(layer, "head.down"));
  head.up = parameters_.at(parameter_name(layer, "head.up"));
  return head;
}

Linear Exits::linear(int64_t layer, const char* part) const {
  const std::string name = parameter_name(layer, part);
  const auto packed = packed_.find(name);
  return packed == packed_.end() ? Linear(parameters_.at(name)) : packed->second;
}

at::Tensor Exits::logits(const TransformerModel& model, int64_t layer, const at::Tensor& hidden) const {
  const ExitShape* exit = find(layer);
  const at::Tensor read = finish(model, layer, hidden);  // [...,D]
  if (exit == nullptr || exit->head == ExitHead::kShared) return model.head(read);
  if (exit->head == ExitHead::kFull) {
    const at::Tensor own = linear(layer, "head.weight")(read);
    const at::Tensor& bias = model.head_bias();
    return model.logits_of(bias.defined() ? own + bias : own);
  }
  const at::Tensor shared = model.head_rows(read);             // [...,rows]
  const at::Tensor narrow = linear(layer, "head.down")(read);  // [...,r]
  const Linear up = linear(layer, "head.up");
  return model.logits_of(model.vocabulary_rows().pruned() ? shared + up(narrow) : up.add_to(shared, narrow));
}

void Exits::bind(std::string model, std::string model_hash) {
  config_.model = std::move(model);
  config_.model_hash = std::move(model_hash);
}

void Exits::to(at::Device device, at::ScalarType dtype) {
  packed_.clear();
  for (auto& [name, value] : parameters_) {
    value = value.detach().to(device, dtype).requires_grad_(value.requires_grad());
  }
}

void Exits::pack() {
  WeightArena arena;
  for (const auto& [name, value] : parameters_) {
    if (name.find(".head.") == std::string::npos) continue;
    Linear& layer = packed_[name] = Linear(value);
    layer.pack(arena);
  }
}

at::Tensor exit_logits(const TransformerModel& model, const Exits* exits, int64_t layer, const at::Tensor& hidden) {
  return exits == nullptr ? model.exit_head(hidden) : exits->logits(model, layer, hidden);
}

}  // namespace draftsmith::model
