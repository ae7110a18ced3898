// Generation settings of a model directory (generation_config.json, or the same keys in config.json of old models):
// settings that decoding honours, and settings that it refuses because they are not implemented. Nothing is ignored
// silently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

struct GenerationConfig {
  std::vector<int64_t> eos_ids;  // any of them ends a row
  int64_t pad = 0;
  int64_t decoder_start = 0;   // encoder-decoder models only
  std::optional<int64_t> bos;  // first token of a decoder-only model's empty prompt

  // Logits processors, in the order Transformers applies them. Each acts at every position it concerns, also inside a
  // draft that is being verified.
  double repetition_penalty = 1.0;   // 1: off; > 1 divides positive and multiplies negative logits of seen tokens
  int64_t no_repeat_ngram_size = 0;  // 0: off; no n-gram of this size appears twice
  std::vector<std::vector<int64_t>> bad_words;  // token sequences that are never completed
  int64_t min_length = 0;  // EOS is impossible before this length, start token and prompt counted; 0: off
  std::optional<int64_t> min_new_tokens;  // EOS is impossible before this many new tokens; min_length is then ignored
  std::optional<int64_t> forced_bos;      // the first token after the start token
  std::vector<int64_t> forced_eos;        // the only tokens possible at the last position before the length limit
  std::vector<int64_t> suppress;          // never generated

  // Lengths, when the user gives none. max_new_tokens wins over max_length; absent: the caller's default.
  std::optional<int64_t> max_length;  // start token and prompt counted
  std::optional<int64_t> max_new_tokens;

  // Sampling, when the user asks for sampling and gives no values.
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;

  int64_t num_beams = 1;                  // of Transformers: every method here follows one beam
  std::vector<std::string> stop_strings;  // a text that comes to hold one of them ends

  // Settings that this program does not implement, with values that would change outputs, as JSON.
  std::map<std::string, std::string> unsupported;
  // Settings of Transformers' beam search, and whether it samples: they are kept for it, as JSON.
  std::map<std::string, std::string> kept;

  // Returns whether any logits processor is on (then greedy decoding is not the plain arg max).
  bool has_processors() const;
};

// Reads a directory's generation_config.json if it is there, otherwise the same keys of `config_json`, the parsed
// config.json. Absent token ids are those of `config`. Ids that the vocabulary does not have are ignored with a
// warning, or problems where a token would be put in, as of a start id. So are values out of range.
GenerationConfig read_generation_config(const std::filesystem::path& directory, const nlohmann::json& config_json,
                                        const TransformerConfig& config, Problems& problems);

// Returns whether a key belongs to generation settings, be it implemented or not.
bool is_generation_key(const std::string& key);

// Returns the settings of a model without any: token ids from its configuration.
GenerationConfig default_generation_config(const TransformerConfig& config);

// Returns generation_config.json as Transformers reads it; settings at their neutral values are left out.
nlohmann::ordered_json to_json(GenerationConfig generation);

// Throws a UserError that names every unsupported setting; `where` is the model's directory.
void require_supported(const GenerationConfig& generation, const std::string& where);

}  // namespace draftsmith::model
