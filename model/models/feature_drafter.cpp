#include "model/models/feature_drafter.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "model/families/family.h"
#include "model/models/companion.h"
#include "model/models/exits.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {
namespace {

constexpr CompanionRole kFeatureRole = {.key = "draftsmith_features",
                                        .role = "target",
                                        .reader = "features drafter",
                                        .remedy = "",
                                        .require_pair = require_feature_pair};

// Adds a problem for layers that are not rising numbers of the target's.
void check_read_layers(const FeatureShape& shape, const std::string& where, Problems& problems) {
  const std::vector<int64_t>& layers = shape.layers;
  const bool rising = std::ranges::adjacent_find(layers, std::greater_equal<>()) == layers.end();
  if (rising && !layers.empty() && layers.front() >= 0 && layers.back() <= shape.target_layers) return;
  problems.add(
      {.where = where,
       .what = "names states that the target does not have, or not in their order",
       .expected = fmt::format("rising numbers from 0 (embedding output) to {} (its last layer)", shape.target_layers),
       .found =
           layers.size() > 16 ? fmt::format("{} numbers", layers.size()) : fmt::format("{}", fmt::join(layers, ", "))});
}

void feature_keys(ConfigKeys& keys, TransformerConfig& config) {
  std::optional<ConfigKeys> object = keys.within(kFeatureRole.key);
  if (!object) return;
  object->integer("target_layers", config.features.target_layers, {1, kMaxLayers});
  object->integers("layers", config.features.layers);
  object->also("layers", config.features.layers);  // a list even of one number
  object->integer("unrolled", config.features.unrolled, {1, kMaxPositions});
  object->flag("block", config.features.block, false);
  object->integer("markov_rank", config.features.markov_rank, {0, kMostMarkovRank}, 0);
  if (!keys.reads()) return;
  ConfigReader& reader = keys.reader();
  check_read_layers(config.features, reader.where() + ": " + kFeatureRole.key + ": layers", reader.problems());
  if (config.features.markov_rank > 0 && !config.features.block) {
    object->reader().wrong("markov_rank", "gives a bias to a drafter that reads its tokens", "0, or \"block\": true");
  }
  if (config.encoder_layers != 0) {
    reader.wrong("num_layers", "gives a features drafter an encoder, where it reads its target's", "0");
  }
}

// Returns the layers that are read by default: one low, the middle and the last, as far as they differ.
std::vector<int64_t> default_read_layers(int64_t layers) {
  const std::set<int64_t> read{std::min<int64_t>(2, layers / 3), layers / 2, layers};
  return {read.begin(), read.end()};
}

// Returns the name of the target's parameter that a drafter's begins as: those of its layers as the target's last ones.
std::string name_in_target(const std::string& name, const TransformerConfig& drafter) {
  if (name.starts_with("feature_norm")) {
    return fmt::format("decoder.{}.self_attention.norm{}", drafter.features.target_layers - 1, name.substr(12));
  }
  if (name.starts_with("decoder.0.self_attention.norm.")) return name;  // of embedded tokens
  const size_t dot = name.find('.') + 1;
  const bool in_layer = name.starts_with("decoder.") && name[dot] >= '0' && name[dot] <= '9';
  if (!in_layer) return name;
  const size_t end = name.find('.', dot);
  const int64_t first = drafter.features.target_layers - drafter.decoder_layers;
  return fmt::format("decoder.{}{}", first + std::stoll(name.substr(dot, end - dot)), name.substr(end));
}

// Returns a drafter's parameter that begins as the target's `own`, `random` elsewhere.
at::Tensor begun(const ParameterSpec& spec, const at::Tensor& own, const at::Tensor& random,
                 const TransformerConfig& config) {
  if (spec.name.starts_with("head.")) {
    return own.index_select(0, at::tensor(config.draft_vocabulary.ids, at::kLong).to(own.device()));
  }
  if (own.sizes() == at::IntArrayRef(spec.shape)) return own.clone();
  return at::cat({random.narrow(1, 0, config.width), own}, 1);  // [..,2*D] of the first layer: the state's half
}

}  // namespace

const ModelKind& features_kind() {
  static const ModelKind kFeatures = {
      .name = "a features drafter",
      .prefix = "DraftsmithFeatures",
      .model_type = "draftsmith_features",
      .hint =
          "it reads another model's states: decode with its target and this as the drafter "
          "(--model TARGET --drafter DIR)",
      .describes = [](const TransformerConfig& config) { return config.reads_features(); },
      .keys = feature_keys,
      .companion = &kFeatureRole};
  return kFeatures;
}

void require_feature_pair(const TransformerConfig& drafter, const TransformerConfig& target, const PairNames& names) {
  Problems problems;
  check_pair(kFeatureRole, drafter, target, names, problems);
  const auto same = [&](const char* what, int64_t own, int64_t other) {
    require_same(kFeatureRole, names, what, {std::to_string(own), std::to_string(other)}, problems);
  };
  same("the width", drafter.width, target.width);
  same("the target's layers", drafter.features.target_layers, target.decoder_layers);
  same("the size of the vocabulary", drafter.vocabulary, target.vocabulary);
  if (kind_of(target) != ordinary_kind() || !target.draft_vocabulary.ids.empty()) {
    problems.add({.where = names.companion,
                  .what = "is no model that a features drafter reads",
                  .expected = "an ordinary model with all ids of its vocabulary",
                  .found = target.draft_vocabulary.ids.empty() ? kind_of(target).name : "a pruned vocabulary"});
  }
  problems.throw_if_any();
}

TransformerConfig feature_config(const TransformerConfig& target, const FeatureStart& start, const std::string& where) {
  TransformerConfig config = target;
  config.encoder_layers = 0;
  config.decoder_layers = start.decoder_layers;
  config.draft_vocabulary = start.vocabulary;
  config.features = {target.decoder_layers, start.layers, start.unrolled, start.block, start.markov_rank};
  if (start.layers.empty()) config.features.layers = default_read_layers(target.decoder_layers);
  if (target.family == "qwen2" || target.family == "qwen3") {  // EAGLE-3's layers are a Llama's
    config.family = "llama";
    config.query_key_norm = QueryKeyNorm::kNone;
    config.projection_bias = config.output_bias = false;
  }
  const auto outside = [&](int64_t layer) { return layer >= start.decoder_layers; };
  std::erase_if(config.window_layers, outside);
  std::erase_if(config.unrotated_layers, outside);
  Problems problems;
  check_read_layers(config.features, where, problems);
  if (start.decoder_layers > target.decoder_layers) {
    problems.add({.where = where,
                  .what = "the drafter has more layers than its target",
                  .expected = fmt::format("at most {}", target.decoder_layers),
                  .found = std::to_string(start.decoder_layers)});
  }
  problems.throw_if_any();
  return config;
}

std::unique_ptr<TransformerModel> make_feature_drafter(const TransformerModel& target, const FeatureStart& start) {
  const TransformerConfig config = feature_config(target.config(), start, "features of " + target.info().name);
  require_feature_pair(config, target.config(), {"the drafter", target.info().name});
  std::map<std::string, at::Tensor> parameters = initial_parameters(config, start.seed);
  for (const ParameterSpec& spec : expected_parameters(config)) {
    at::Tensor& value = parameters[spec.name];
    const bool projects = spec.name == "feature_projection.weight";
    if (projects && !start.random) {  // the last layer that is read, as it is
      value.zero_();
      value.narrow(1, value.size(1) - config.width, config.width).fill_diagonal_(1);
    }
    value = value.to(target.info().device, target.info().dtype);
    const bool is_head = spec.name.starts_with("head.");
    if (projects || (start.random && !is_head)) continue;
    const bool tied = spec.name == "head.weight";
    const auto own =
        target.parameters().find(tied ? head_parameter(target.config()) : name_in_target(spec.name, config));
    if (own != target.parameters().end()) value = begun(spec, own->second.detach(), value, config);
  }
  auto made = std::make_unique<TransformerModel>(config, std::move(parameters));
  made->set_name("the features drafter of " + target.info().name);
  made->borrow(target);
  return made;
}

}  // namespace draftsmith::model
