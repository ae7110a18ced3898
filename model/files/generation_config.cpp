#include "model/files/generation_config.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"

namespace draftsmith::model {

namespace {

using nlohmann::json;

constexpr int64_t kMaxLength = int64_t{1} << 20;  // of lengths that decode states are made for
constexpr int64_t kMaxCount = int64_t{1} << 40;   // of numbers that only bound something

// Keys that change no output here: bookkeeping, caches, and other programs' drafting.
const std::set<std::string>& harmless_keys() {
  static const std::set<std::string> kKeys = {"transformers_version",
                                              "_from_model_config",
                                              "_commit_hash",
                                              "use_cache",
                                              "cache_implementation",
                                              "cache_config",
                                              "max_cache_len",
                                              "return_legacy_cache",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_scores",
                                              "output_logits",
                                              "return_dict_in_generate",
                                              "is_assistant",
                                              "num_assistant_tokens",
                                              "num_assistant_tokens_schedule",
                                              "assistant_confidence_threshold",
                                              "prompt_lookup_num_tokens",
                                              "max_matching_ngram_size",
                                              "assistant_early_exit",
                                              "assistant_lookbehind",
                                              "target_lookbehind",
                                              "assistant_ensemble_weight",
                                              "speculation_type",
                                              "use_mtp",
                                              "compile_config",
                                              "disable_compile",
                                              "continuous_batching_config",
                                              "low_memory",
                                              "prefill_chunk_size",
                                              "use_model_defaults",
                                              "generation_kwargs"};
  return kKeys;
}

// Keys that decoding implements.
const std::set<std::string>& supported_keys() {
  static const std::set<std::string> kKeys = {"eos_token_id",
                                              "pad_token_id",
                                              "bos_token_id",
                                              "decoder_start_token_id",
                                              "encoder_repetition_penalty",
                                              "repetition_penalty",
                                              "no_repeat_ngram_size",
                                              "encoder_no_repeat_ngram_size",
                                              "bad_words_ids",
                                              "min_length",
                                              "min_new_tokens",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "suppress_tokens",
                                              "begin_suppress_tokens",
                                              "max_length",
                                              "max_new_tokens",
                                              "do_sample",
                                              "temperature",
                                              "top_k",
                                              "top_p",
                                              "min_p",
                                              "num_beams",
                                              "length_penalty",
                                              "early_stopping",
                                              "stop_strings"};
  return kKeys;
}

// Settings that are not implemented, with the values that switch them off.
const std::map<std::string, std::vector<json>>& neutral_values() {
  static const std::map<std::string, std::vector<json>> kValues = {{"num_beam_groups", {1}},
                                                                   {"num_return_sequences", {1}},
                                                                   {"diversity_penalty", {0}},
                                                                   {"penalty_alpha", {0}},
                                                                   {"top_h", {1}},
                                                                   {"typical_p", {1}},
                                                                   {"epsilon_cutoff", {0}},
                                                                   {"eta_cutoff", {0}},
                                                                   {"guidance_scale", {1}},
                                                                   {"renormalize_logits", {false}},
                                                                   {"remove_invalid_values", {false}},
                                                                   {"token_healing", {false}},
                                                                   {"sequence_bias", {json::array(), json::object()}},
                                                                   {"exponential_decay_length_penalty", {}},
                                                                   {"max_time", {}},
                                                                   {"watermarking_config", {}},
                                                                   {"dola_layers", {}},
                                                                   {"constraints", {json::array()}},
                                                                   {"force_words_ids", {json::array()}}};
  return kValues;
}

// Generation keys that old models keep in config.json, where every other key is the model's own.
bool is_generation_key(const std::string& key) {
  return supported_keys().count(key) != 0 || neutral_values().count(key) != 0;
}

bool is_neutral(const std::string& key, const json& value) {
  const auto known = neutral_values().find(key);
  if (known == neutral_values().end()) {
    return false;
  }
  return std::any_of(known->second.begin(), known->second.end(), [&](const json& off) {
    return off.is_number() && value.is_number() ? off.get<double>() == value.get<double>() : off == value;
  });
}

std::vector<UnsupportedSetting> find_unsupported(const json& settings, bool from_model_config) {
  std::vector<UnsupportedSetting> list;
  for (const auto& [key, value] : settings.items()) {
    const bool known = supported_keys().count(key) != 0 || harmless_keys().count(key) != 0;
    const bool foreign = from_model_config && !is_generation_key(key);
    if (known || foreign || value.is_null() || is_neutral(key, value)) {
      continue;
    }
    list.push_back({key, value.dump(-1, ' ', true, json::error_handler_t::replace)});
  }
  return list;
}

std::vector<std::vector<int64_t>> read_bad_words(ConfigReader& reader, int64_t vocabulary) {
  const std::string key = "bad_words_ids";
  std::vector<std::vector<int64_t>> words;
  if (!reader.has(key)) {
    return words;
  }
  const std::string expected = fmt::format("a list of non-empty lists of token ids in 0..{}", vocabulary - 1);
  const auto good_id = [&](const json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocabulary);
  };
  const json& value = reader.at(key);
  bool good = value.is_array();
  for (size_t i = 0; good && i < value.size(); ++i) {
    good = value[i].is_array() && !value[i].empty() && std::all_of(value[i].begin(), value[i].end(), good_id);
    if (good) {
      words.push_back(value[i].get<std::vector<int64_t>>());
    }
  }
  if (!good) {
    reader.wrong(key, "is malformed", expected);
    return {};
  }
  return words;
}

void read_processors(ConfigReader& reader, int64_t vocabulary, GenerationConfig& out) {
  const int64_t last = vocabulary - 1;
  out.encoder_repetition_penalty = reader.number("encoder_repetition_penalty", 1.0, 1e-6, 1e6);
  out.repetition_penalty = reader.number("repetition_penalty", 1.0, 1e-6, 1e6);
  out.no_repeat_ngram_size = reader.get_int("no_repeat_ngram_size", {0, kMaxCount}, 0);
  out.encoder_no_repeat_ngram_size = reader.get_int("encoder_no_repeat_ngram_size", {0, kMaxCount}, 0);
  out.bad_words = read_bad_words(reader, vocabulary);
  out.min_length = reader.get_int("min_length", {0, kMaxCount}, 0);
  out.min_new_tokens = reader.optional_int("min_new_tokens", {0, kMaxCount});
  out.forced_bos = reader.optional_int("forced_bos_token_id", {0, last});
  out.forced_eos = reader.get_ints("forced_eos_token_id", {0, last});
  out.suppress = reader.get_ints("suppress_tokens", {0, last});
  out.begin_suppress = reader.get_ints("begin_suppress_tokens", {0, last});
}

void read_lengths_and_sampling(ConfigReader& reader, GenerationConfig& out) {
  out.max_length = reader.optional_int("max_length", {1, kMaxLength});
  out.max_new_tokens = reader.optional_int("max_new_tokens", {1, kMaxLength});
  out.do_sample = reader.get_bool("do_sample", false);
  if (reader.has("temperature")) {
    out.temperature = reader.number("temperature", 1.0, 0.0, 1e6);
  }
  out.top_k = reader.optional_int("top_k", {0, kMaxCount});
  if (reader.has("top_p")) {
    out.top_p = reader.number("top_p", 1.0, 0.0, 1.0);
  }
  if (reader.has("min_p")) {
    out.min_p = reader.number("min_p", 0.0, 0.0, 1.0);
  }
}

// Transformers takes true, false or "never".
std::string read_early_stopping(ConfigReader& reader) {
  const std::string key = "early_stopping";
  if (!reader.has(key)) {
    return "false";
  }
  const json& value = reader.at(key);
  if (value.is_boolean()) {
    return value.get<bool>() ? "true" : "false";
  }
  if (value != "never") {
    reader.wrong(key, "is malformed", "true, false or \"never\"");
  }
  return "never";
}

void read_beam_search(ConfigReader& reader, GenerationConfig& out) {
  out.num_beams = reader.get_int("num_beams", {1, kMaxCount}, 1);
  out.length_penalty = reader.number("length_penalty", 1.0, -1e6, 1e6);
  out.early_stopping = read_early_stopping(reader);
}

// Transformers takes one string or a list of them.
std::vector<std::string> read_stop_strings(ConfigReader& reader) {
  const std::string key = "stop_strings";
  if (!reader.has(key)) {
    return {};
  }
  const json& value = reader.at(key);
  const json list = value.is_array() ? value : json::array({value});
  const auto good = [](const json& text) { return text.is_string() && !text.get_ref<const std::string&>().empty(); };
  if (!std::all_of(list.begin(), list.end(), good)) {
    reader.wrong(key, "is malformed", "a string that is not empty, or a list of such strings");
    return {};
  }
  return list.get<std::vector<std::string>>();
}

}  // namespace

bool GenerationConfig::has_processors() const {
  return encoder_repetition_penalty != 1.0 || repetition_penalty != 1.0 || no_repeat_ngram_size > 0 ||
         encoder_no_repeat_ngram_size > 0 || !bad_words.empty() || min_length > 0 || min_new_tokens.value_or(0) > 0 ||
         forced_bos.has_value() || !forced_eos.empty() || !suppress.empty() || !begin_suppress.empty();
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
  ConfigReader reader(settings, (own_file ? file : directory / "config.json").string(), problems);
  const int64_t last = config.vocabulary - 1;

  GenerationConfig generation = default_generation_config(config);
  if (reader.has("eos_token_id")) {
    generation.eos_ids = reader.get_ints("eos_token_id", {0, last});
  }
  generation.pad = reader.get_int("pad_token_id", {0, last}, config.pad);
  generation.decoder_start = reader.get_int("decoder_start_token_id", {0, last}, config.decoder_start);
  if (const auto bos = reader.optional_int("bos_token_id", {0, last})) {
    generation.bos = bos;
  }
  read_processors(reader, config.vocabulary, generation);
  read_lengths_and_sampling(reader, generation);
  read_beam_search(reader, generation);
  generation.stop_strings = read_stop_strings(reader);
  generation.unsupported = find_unsupported(settings, !own_file);
  return generation;
}

nlohmann::ordered_json to_json(const GenerationConfig& generation) {
  nlohmann::ordered_json out;
  const auto put = [&](const char* key, const auto& value, bool on) {
    if (on) {
      out[key] = value;
    }
  };
  const auto put_ids = [&](const char* key, const std::vector<int64_t>& ids) {
    if (ids.size() == 1) {
      out[key] = ids[0];
    } else if (!ids.empty()) {
      out[key] = ids;
    }
  };
  const auto put_optional = [&](const char* key, const auto& value) {
    if (value) {
      out[key] = *value;
    }
  };
  out["pad_token_id"] = generation.pad;
  put_ids("eos_token_id", generation.eos_ids);
  out["decoder_start_token_id"] = generation.decoder_start;
  put_optional("bos_token_id", generation.bos);
  put("encoder_repetition_penalty", generation.encoder_repetition_penalty,
      generation.encoder_repetition_penalty != 1.0);
  put("repetition_penalty", generation.repetition_penalty, generation.repetition_penalty != 1.0);
  put("no_repeat_ngram_size", generation.no_repeat_ngram_size, generation.no_repeat_ngram_size > 0);
  put("encoder_no_repeat_ngram_size", generation.encoder_no_repeat_ngram_size,
      generation.encoder_no_repeat_ngram_size > 0);
  put("bad_words_ids", generation.bad_words, !generation.bad_words.empty());
  put("min_length", generation.min_length, generation.min_length > 0);
  put_optional("min_new_tokens", generation.min_new_tokens);
  put_optional("forced_bos_token_id", generation.forced_bos);
  put_ids("forced_eos_token_id", generation.forced_eos);
  put("suppress_tokens", generation.suppress, !generation.suppress.empty());
  put("begin_suppress_tokens", generation.begin_suppress, !generation.begin_suppress.empty());
  put_optional("max_length", generation.max_length);
  put_optional("max_new_tokens", generation.max_new_tokens);
  put("do_sample", true, generation.do_sample);
  put_optional("temperature", generation.temperature);
  put_optional("top_k", generation.top_k);
  put_optional("top_p", generation.top_p);
  put_optional("min_p", generation.min_p);
  put("num_beams", generation.num_beams, generation.num_beams != 1);
  put("length_penalty", generation.length_penalty, generation.length_penalty != 1.0);
  put("early_stopping", true, generation.early_stopping == "true");
  put("early_stopping", generation.early_stopping, generation.early_stopping == "never");
  put("stop_strings", generation.stop_strings, !generation.stop_strings.empty());
  for (const UnsupportedSetting& setting : generation.unsupported) {
    out[setting.name] = json::parse(setting.value, nullptr, false);
  }
  return out;
}

void require_supported(const GenerationConfig& generation, const std::string& where) {
  Problems problems;
  for (const UnsupportedSetting& setting : generation.unsupported) {
    problems.add({.where = where + ": generation setting " + setting.name,
                  .what = "this setting is not supported and would change the output",
                  .expected = "the setting absent or neutral",
                  .found = setting.value.substr(0, 200),
                  .hint = "remove it from generation_config.json to decode without it"});
  }
  problems.throw_if_any();
}

}  // namespace draftsmith::model
