#include "model/files/generation_config.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;

constexpr int64_t kMaxLength = int64_t{1} << 20;  // of lengths that decode states are made for
constexpr int64_t kMaxCount = int64_t{1} << 40;   // of numbers that only bound something

// Keys that change no output here: bookkeeping, caches, and other programs' drafting.
constexpr std::string_view kHarmless =
    " transformers_version _from_model_config _commit_hash use_cache cache_implementation cache_config"
    " max_cache_len return_legacy_cache output_attentions output_hidden_states output_scores output_logits"
    " return_dict_in_generate is_assistant num_assistant_tokens num_assistant_tokens_schedule"
    " assistant_confidence_threshold prompt_lookup_num_tokens max_matching_ngram_size assistant_early_exit"
    " assistant_lookbehind target_lookbehind assistant_ensemble_weight speculation_type use_mtp compile_config"
    " disable_compile continuous_batching_config low_memory prefill_chunk_size use_model_defaults"
    " generation_kwargs ";

// Keys that change nothing here and are written back: the method decides whether it samples, and follows one beam.
constexpr std::string_view kKept = " do_sample early_stopping length_penalty renormalize_logits ";

// Settings that are not implemented, with a list of the values that switch them off, as JSON.
struct NeutralValues {
  std::string_view values;
  std::string_view keys;
};
constexpr NeutralValues kNeutral[] = {
    {"[0]", " diversity_penalty penalty_alpha epsilon_cutoff eta_cutoff encoder_no_repeat_ngram_size "},
    {"[1]", " num_beam_groups num_return_sequences top_h typical_p guidance_scale encoder_repetition_penalty "},
    {"[false]", " remove_invalid_values token_healing "},
    {"[[], {}]", " sequence_bias "},
    {"[]", " exponential_decay_length_penalty max_time watermarking_config dola_layers "},
    {"[[]]", " constraints force_words_ids begin_suppress_tokens "}};

const NeutralValues* neutral_values(const std::string& key) {
  const auto* found = std::ranges::find_if(kNeutral, [&](const auto& known) { return lists(known.keys, key); });
  return found == std::end(kNeutral) ? nullptr : found;
}

bool is_neutral(const std::string& key, const json& value) {
  const NeutralValues* known = neutral_values(key);
  const json off = known == nullptr ? json::array() : json::parse(known->values);
  return std::find(off.begin(), off.end(), value) != off.end();
}

// Reads lists of ids. One with an id that never occurs bans nothing.
std::vector<std::vector<int64_t>> read_bad_words(ConfigKeys& keys, const std::string& key, TokenIds ids) {
  const json& value = keys.reader().at(key);
  const auto good = [](const json& word) {
    return word.is_array() && !word.empty() && std::ranges::all_of(word, &json::is_number_integer);
  };
  if (!value.is_array() || !std::ranges::all_of(value, good)) {
    keys.reader().wrong(key, "is malformed", "a list of non-empty lists of token ids");
    return {};
  }
  auto words = value.get<std::vector<std::vector<int64_t>>>();
  std::erase_if(words, [&](const auto& word) {
    return !std::ranges::all_of(word, [&](int64_t id) { return keys.occurs(key, id, ids); });
  });
  return words;
}

// Transformers takes one string or a list of them.
std::vector<std::string> read_stop_strings(ConfigReader& reader, const std::string& key) {
  const json& value = reader.at(key);
  const json list = value.is_array() ? value : json::array({value});
  const auto good = [](const json& text) { return text.is_string() && !text.get_ref<const std::string&>().empty(); };
  if (!std::all_of(list.begin(), list.end(), good)) {
    reader.wrong(key, "is malformed", "a string that is not empty, or a list of such strings");
    return {};
  }
  return list.get<std::vector<std::string>>();
}

// Lists the settings that decoding implements. `vocabulary` bounds token ids.
void list_settings(ConfigKeys& keys, GenerationConfig& settings, int64_t vocabulary) {
  const IntRange ids{0, vocabulary - 1};  // of those that are put in
  const TokenIds seen{vocabulary};
  keys.integer("pad_token_id", settings.pad, seen, settings.pad);
  keys.end_ids("eos_token_id", settings.eos_ids, seen);
  keys.integer("decoder_start_token_id", settings.decoder_start, ids, settings.decoder_start);
  keys.integer("bos_token_id", settings.bos, seen);
  keys.number("repetition_penalty", settings.repetition_penalty, 1.0, 1e-6, 1e6);
  keys.integer("no_repeat_ngram_size", settings.no_repeat_ngram_size, {0, kMaxCount}, 0);
  if (keys.custom("bad_words_ids", settings.bad_words)) {
    settings.bad_words = read_bad_words(keys, "bad_words_ids", seen);
  }
  keys.integer("min_length", settings.min_length, {0, kMaxCount}, 0);
  keys.integer("min_new_tokens", settings.min_new_tokens, {0, kMaxCount});
  keys.integer("forced_bos_token_id", settings.forced_bos, ids);
  keys.end_ids("forced_eos_token_id", settings.forced_eos, ids);
  keys.integers("suppress_tokens", settings.suppress, seen);
  keys.integer("max_length", settings.max_length, {1, kMaxLength});
  keys.integer("max_new_tokens", settings.max_new_tokens, {1, kMaxLength});
  keys.number("temperature", settings.temperature, 0.0, 1e6);
  keys.integer("top_k", settings.top_k, {0, kMaxCount});
  keys.number("top_p", settings.top_p, 0.0, 1.0);
  keys.number("min_p", settings.min_p, 0.0, 1.0);
  keys.integer("num_beams", settings.num_beams, {1, kMaxCount}, 1);
  if (keys.custom("stop_strings", settings.stop_strings)) {
    settings.stop_strings = read_stop_strings(keys.reader(), "stop_strings");
  }
}

// Returns the settings that are not implemented. In config.json keys that no generation has are the model's own.
std::map<std::string, std::string> find_unsupported(const json& settings, const std::set<std::string>& supported,
                                                    bool from_model_config) {
  std::map<std::string, std::string> list;
  for (const auto& [key, value] : settings.items()) {
    const bool foreign = from_model_config && neutral_values(key) == nullptr;
    const bool known = supported.contains(key) || lists(kHarmless, key) || lists(kKept, key);
    if (known || foreign || value.is_null() || is_neutral(key, value)) continue;
    list[key] = value.dump(-1, ' ', true, json::error_handler_t::replace);
  }
  return list;
}

}  // namespace

bool GenerationConfig::has_processors() const {
  return repetition_penalty != 1.0 || no_repeat_ngram_size > 0 || !bad_words.empty() || min_length > 0 ||
         min_new_tokens.value_or(0) > 0 || forced_bos.has_value() || !forced_eos.empty() || !suppress.empty();
}

GenerationConfig default_generation_config(const TransformerConfig& config) {
  GenerationConfig generation;
  generation.eos_ids = config.eos;
  generation.pad = config.pad;
  generation.decoder_start = config.decoder_start;
  generation.bos = config.bos;
  return generation;
}

GenerationConfig read_generation_config(const std::filesystem::path& directory, const json& config_json,
                                        const TransformerConfig& config, Problems& problems) {
  const auto file = directory / "generation_config.json";
  const bool own_file = std::filesystem::exists(file);
  const json settings = own_file ? load_json(file) : config_json;
  ConfigKeys keys(ConfigReader(settings, (own_file ? file : directory / "config.json").string(), problems));
  GenerationConfig generation = default_generation_config(config);
  list_settings(keys, generation, config.vocabulary);
  keys.warn_of_ids();
  generation.unsupported = find_unsupported(settings, keys.listed(), !own_file);
  for (const auto& [key, value] : settings.items()) {
    if (lists(kKept, key) && !value.is_null()) generation.kept[key] = value.dump();
  }
  return generation;
}

bool is_generation_key(const std::string& key) {
  static const std::set<std::string> kImplemented = [] {
    nlohmann::ordered_json out;
    ConfigKeys keys(out, false);
    GenerationConfig any;
    list_settings(keys, any, 0);
    return keys.listed();
  }();
  return lists(kHarmless, key) || lists(kKept, key) || kImplemented.contains(key) || neutral_values(key) != nullptr;
}

nlohmann::ordered_json to_json(GenerationConfig generation) {
  nlohmann::ordered_json out;
  ConfigKeys keys(out, false);
  out["pad_token_id"] = generation.pad;
  out["decoder_start_token_id"] = generation.decoder_start;
  list_settings(keys, generation, 0);
  for (const auto* others : {&generation.unsupported, &generation.kept}) {
    for (const auto& [name, value] : *others) out[name] = json::parse(value, nullptr, false);
  }
  return out;
}

void require_supported(const GenerationConfig& generation, const std::string& where) {
  Problems problems;
  for (const auto& [name, value] : generation.unsupported) {
    problems.add({.where = where + ": generation setting " + name,
                  .what = "this setting is not supported and would change the output",
                  .expected = "the setting absent or neutral",
                  .found = value.substr(0, 200),
                  .hint = "remove it from generation_config.json to decode without it"});
  }
  problems.throw_if_any();
}

}  // namespace draftsmith::model
