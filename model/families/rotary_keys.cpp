// Keys of rotary positions as Transformers 5.23 reads them: rope_scaling, if it is not empty, stands in the place of
// rope_parameters; what the object lacks comes from keys beside it, then from the family. Keys that Transformers leaves
// unread are refused where they ask for other numbers.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "model/families/family.h"

namespace draftsmith::model {
namespace {

constexpr double kMostBase = 1e12;
constexpr double kMostFactor = 1e6;
constexpr const char* kShare = "partial_rotary_factor";
constexpr const char* kLength = "original_max_position_embeddings";

constexpr std::pair<const char*, RotaryScaling> kScalings[] = {{"default", RotaryScaling::kNone},
                                                               {"linear", RotaryScaling::kLinear},
                                                               {"dynamic", RotaryScaling::kDynamic},
                                                               {"yarn", RotaryScaling::kYarn},
                                                               {"llama3", RotaryScaling::kLlama3}};

// Returns a factor that a scaling cannot do without.
double needed_factor(ConfigReader& settings, const char* key, double least) {
  if (settings.has(key)) return settings.number(key, 1.0, least, kMostFactor);
  settings.wrong(key, "is missing from this rotary scaling", fmt::format("a number of at least {}", least));
  return 1.0;
}

// Returns the length of pretraining. That beside the settings wins.
int64_t length_of_pretraining(ConfigReader& reader, ConfigReader& settings, int64_t positions) {
  return (reader.has(kLength) ? reader : settings).get_int(kLength, {1, kMaxPositions}, positions);
}

// Returns by how much YaRN stretches attention, for texts that are `scale` times as long.
double yarn_stretch(double scale, double share) {
  return scale <= 1 ? 1.0 : 0.1 * share * std::log(scale) + 1.0;
}

void read_yarn(ConfigReader& settings, RotaryConfig& config) {
  // 0 is read as absent.
  const auto given = [&](const char* key, double fallback) {
    const double value = settings.number(key, fallback, 0.0, kMostFactor);
    return value == 0 ? fallback : value;
  };
  config.fast_turns = given("beta_fast", 32);
  config.slow_turns = given("beta_slow", 1);
  config.whole_pairs = !settings.says_null("truncate") && settings.get_bool("truncate", true);
  const double share = given("mscale", 0);
  const double all = given("mscale_all_dim", 0);
  const bool both = share != 0 && all != 0;
  const double usual =
      both ? yarn_stretch(config.factor, share) / yarn_stretch(config.factor, all) : yarn_stretch(config.factor, 1);
  config.attention_factor = settings.number("attention_factor", usual, 0.0, kMostFactor);
  if (config.base <= 1) settings.wrong("rope_theta", "is too small for YaRN", "a number above 1");
}

void read_llama3(ConfigReader& settings, RotaryConfig& config) {
  config.low_frequency_factor = needed_factor(settings, "low_freq_factor", 1e-6);
  config.high_frequency_factor = needed_factor(settings, "high_freq_factor", 1e-6);
  if (settings.has("high_freq_factor") && config.high_frequency_factor <= config.low_frequency_factor) {
    settings.wrong("high_freq_factor", "must be larger than low_freq_factor", "a larger number");
  }
}

void read_scaling(ConfigReader& reader, ConfigReader& settings, int64_t positions, RotaryConfig& config) {
  const char* key = settings.has("rope_type") ? "rope_type" : "type";
  const std::string type = settings.get_string(key, "default");
  const auto* const known = std::ranges::find(kScalings, type, &std::pair<const char*, RotaryScaling>::first);
  if (known == std::end(kScalings)) {
    return settings.wrong(key, "is a rotary scaling that is not supported", "default, linear, dynamic, yarn or llama3");
  }
  config.scaling = known->second;
  const bool yarn = config.scaling == RotaryScaling::kYarn;
  const bool llama3 = config.scaling == RotaryScaling::kLlama3;
  if (yarn || llama3) config.original_positions = length_of_pretraining(reader, settings, positions);
  if (yarn && settings.says_null("factor")) {
    const double ratio = static_cast<double>(positions) / static_cast<double>(config.original_positions);
    config.factor = ratio;
  } else if (config.scaling != RotaryScaling::kNone) {
    config.factor = needed_factor(settings, "factor", 1.0);
  }
  if (yarn) read_yarn(settings, config);
  if (llama3) read_llama3(settings, config);
}

// Refuses a key beside the settings that Transformers does not read, if it says something else than `value`.
void refuse_other(ConfigReader& reader, const char* key, double value) {
  if (!reader.has(key) || reader.at(key) == value) return;
  reader.wrong(key, "is not read by Transformers in models of this family, and differs from what is",
               fmt::format("{} as elsewhere, or nothing", value));
}

// Returns how many numbers of a head are rotated.
int64_t read_width(ConfigReader& reader, ConfigReader& settings, int64_t head_width, const RotaryKeys& names) {
  const char* own = names.share == nullptr ? kShare : names.share;
  const double beside = reader.number(own, names.share_default, 0.0, 1.0);
  const double share = settings.number(kShare, beside, 0.0, 1.0);
  for (const char* other : {kShare, "rotary_pct"}) {
    if (std::string(own) != other) refuse_other(reader, other, share);
  }
  const auto width = static_cast<int64_t>(static_cast<double>(head_width) * share);
  ConfigReader& source = settings.has(kShare) ? settings : reader;
  const char* key = settings.has(kShare) ? kShare : own;
  if (names.share == nullptr) {
    if (share != 1.0) source.wrong(key, "asks for heads of which a part rotates, which this family has not", "1.0");
    return head_width;
  }
  if (width >= 2 && width % 2 == 0) return width;
  source.wrong(key, "leaves no pairs to rotate",
               fmt::format("a share of {} that is an even number of at least 2", head_width));
  return 2;
}

RotaryConfig read_positions(ConfigReader& reader, ConfigReader& settings, const TransformerConfig& model,
                            const RotaryKeys& names) {
  RotaryConfig config;
  config.base = reader.number(names.base, names.base_default, 1.0, kMostBase);
  config.base = settings.number("rope_theta", config.base, 1.0, kMostBase);
  for (const char* other : {"rope_theta", "rotary_emb_base"}) {
    if (names.base != std::string(other)) refuse_other(reader, other, config.base);
  }
  config.width = read_width(reader, settings, model.head_width, names);
  read_scaling(reader, settings, model.max_positions, config);
  return config;
}

// Returns the object of a key, an empty one if there is none.
nlohmann::json settings_at(ConfigReader& reader, const char* key) {
  if (!reader.has(key)) return nlohmann::json::object();
  if (!reader.at(key).is_object()) reader.wrong(key, "is not an object", "an object with rope_type");
  return reader.at(key).is_object() ? reader.at(key) : nlohmann::json::object();
}

// Returns the key of the settings that count, or nothing.
std::optional<std::string> key_of_settings(ConfigReader& reader) {
  const bool newer = !settings_at(reader, "rope_parameters").empty();
  if (settings_at(reader, "rope_scaling").empty()) {
    return newer ? std::optional<std::string>("rope_parameters") : std::nullopt;
  }
  if (newer && reader.at("rope_parameters") != reader.at("rope_scaling")) {
    log_warning_once("{}: rope_scaling is read and rope_parameters is not, as Transformers does; they differ",
                     reader.where());
  }
  return "rope_scaling";
}

RotaryConfig read_rotary(ConfigReader& reader, const TransformerConfig& model, const RotaryKeys& names) {
  static const nlohmann::json kNothing = nlohmann::json::object();
  const auto key = key_of_settings(reader);
  const nlohmann::json& object = key ? reader.at(*key) : kNothing;
  ConfigReader settings(object, key ? reader.where() + ": " + *key : reader.where(), reader.problems());
  const RotaryConfig config = read_positions(reader, settings, model, names);
  // Settings of layers of one kind, inside of those of all: such kinds are other families'.
  for (const auto& [kind, nested] : object.items()) {
    if (!nested.is_object()) continue;
    ConfigReader own(nested, settings.where() + "." + kind, reader.problems());
    if (read_positions(reader, own, model, names) == config) continue;
    settings.wrong(kind, "gives some layers other rotary positions than Transformers reads for this family",
                   "these values directly in " + *key);
  }
  return config;
}

// Returns the object under rope_parameters.
nlohmann::ordered_json rotary_json(const RotaryConfig& config) {
  nlohmann::ordered_json out{{"rope_theta", config.base}};
  out["rope_type"] =
      std::ranges::find(kScalings, config.scaling, &std::pair<const char*, RotaryScaling>::second)->first;
  if (config.scaling != RotaryScaling::kNone) out["factor"] = config.factor;
  if (config.scaling == RotaryScaling::kLlama3) {
    out["low_freq_factor"] = config.low_frequency_factor;
    out["high_freq_factor"] = config.high_frequency_factor;
    out[kLength] = config.original_positions;
  } else if (config.scaling == RotaryScaling::kYarn) {
    out["attention_factor"] = config.attention_factor;
    out["beta_fast"] = config.fast_turns;
    out["beta_slow"] = config.slow_turns;
    out["truncate"] = config.whole_pairs;
    out[kLength] = config.original_positions;
  }
  return out;
}

}  // namespace

void rotary_keys(ConfigKeys& keys, TransformerConfig& config, const RotaryKeys& names) {
  keys.known({"rope_parameters", "rope_scaling", kLength, kShare, "rope_theta", "rotary_emb_base", "rotary_pct"});
  if (keys.reads()) {
    config.rotary = read_rotary(keys.reader(), config, names);
    return;
  }
  nlohmann::ordered_json rotary = rotary_json(config.rotary);
  if (names.share != nullptr) {
    rotary[kShare] = static_cast<double>(config.rotary.width) / static_cast<double>(config.head_width);
    keys.also(names.share, rotary[kShare]);
  }
  keys.also(names.base, config.rotary.base);  // "rope_theta" and "rope_scaling" are what Transformers 4 reads
  if (config.rotary.scaling != RotaryScaling::kNone) keys.also("rope_scaling", rotary);
  keys.also("rope_parameters", rotary);
}

void rotary_keys_by_window(ConfigKeys& keys, TransformerConfig& config) {
  keys.known({"rope_parameters", "rope_scaling", kLength, kShare, "rope_theta", "rope_local_base_freq"});
  if (!keys.reads()) {
    keys.also("rope_parameters",
              {{kFullAttention, rotary_json(config.rotary)}, {kSlidingAttention, rotary_json(*config.window_rotary)}});
    return;
  }
  ConfigReader& reader = keys.reader();
  const nlohmann::json all = settings_at(reader, "rope_parameters");
  ConfigReader kinds(all, reader.where() + ": rope_parameters", reader.problems());
  for (const auto& [key, value] : all.items()) {
    if (value.is_object() || value.is_null()) continue;
    reader.wrong("rope_parameters",
                 "has '" + key + "' outside of the kinds of layers, where Transformers does not read",
                 "objects full_attention and sliding_attention");
  }
  // Returns the rotation of a kind of layers. `base`: the kind's own key beside the objects; a length of pretraining
  // there is not read.
  const auto rotation_of = [&](const char* kind, const nlohmann::json& older, const char* base, double usual_base) {
    nlohmann::json own = {{"rope_type", "default"}};
    own.update(settings_at(kinds, kind));
    own.update(older);
    const std::string key = older.empty() ? "rope_parameters" : "rope_scaling";
    if (own.contains("type") && own["type"] != own["rope_type"]) {
      reader.wrong(key, "has the older key 'type', which Transformers does not read for this family", "rope_type");
    }
    nlohmann::json beside = nlohmann::json::object();
    if (reader.has(base)) beside["rope_theta"] = reader.at(base);
    if (reader.has(kShare)) beside[kShare] = reader.at(kShare);
    ConfigReader others(beside, reader.where(), reader.problems());
    ConfigReader settings(own, reader.where() + ": " + key + (older.empty() ? "." + std::string(kind) : ""),
                          reader.problems());
    return read_positions(others, settings, config, {.base_default = usual_base});
  };
  config.rotary = rotation_of(kFullAttention, settings_at(reader, "rope_scaling"), "rope_theta", 1e6);
  config.window_rotary = rotation_of(kSlidingAttention, nlohmann::json::object(), "rope_local_base_freq", 1e4);
}

}  // namespace draftsmith::model
