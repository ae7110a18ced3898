#include "infer/prompts.h"

#include <algorithm>

#include <fmt/format.h>

#include "infer/drafters/drafter.h"
#include "infer/loop/processors.h"
#include "model/models/language_models.h"

namespace draftsmith::infer {
namespace {

model::GenerationConfig settings_of(const GenerationModels& models) {
  if (models.generation) return *models.generation;
  model::GenerationConfig settings;
  settings.eos_ids = models.target->info().eos;
  settings.pad = models.target->info().pad;
  settings.decoder_start = models.target->info().decoder_start;
  return settings;
}

Warping warping_of(const DecodeOptions& options, const model::GenerationConfig& settings) {
  const double usual = options.samples_by_default() ? settings.temperature.value_or(1.0) : 0.0;
  return {options.temperature.value_or(usual), options.top_k.value_or(settings.top_k.value_or(0)),
          options.top_p.value_or(settings.top_p.value_or(1.0)), options.min_p.value_or(settings.min_p.value_or(0.0))};
}

void require_tokenizer_for_stops(const GenerationModels& models) {
  if (models.target_tokenizer != nullptr) return;
  throw UserError({.where = "stop_strings of " + models.target->info().name,
                   .what = "stop strings are looked for in text, and the model has no tokenizer",
                   .expected = "a tokenizer in the model's directory",
                   .found = "none",
                   .hint = "leave stop_strings out, or add the tokenizer"});
}

}  // namespace

model::GenerationConfig generation_settings(const GenerationModels& models, const DecodeOptions& options) {
  model::GenerationConfig settings = settings_of(models);
  settings.repetition_penalty = options.repetition_penalty.value_or(settings.repetition_penalty);
  settings.no_repeat_ngram_size = options.no_repeat_ngram_size.value_or(settings.no_repeat_ngram_size);
  if (options.min_new_tokens) settings.min_new_tokens = options.min_new_tokens;
  if (!options.stop_strings.empty()) settings.stop_strings = options.stop_strings;
  model::require_supported(settings, models.target->info().name);
  if (!settings.stop_strings.empty()) require_tokenizer_for_stops(models);
  return settings;
}

DecodeSettings decode_settings(const GenerationModels& models, const DecodeOptions& options,
                               const model::GenerationConfig& generation) {
  DecodeSettings settings;
  settings.warping = warping_of(options, generation);
  settings.processors = LogitsProcessors(generation);
  settings.eos = generation.eos_ids;
  settings.measure_alpha = options.measure_alpha;
  if (models.target_tokenizer != nullptr) settings.ids = ids_in_use(*models.target_tokenizer, settings.eos);
  return settings;
}

namespace {

// Number of new tokens if neither options nor model say.
constexpr int64_t kUsualNewTokens = 128;

std::string where_of(uint64_t line) {
  return "input " + std::to_string(line + 1);
}

void check_ids(const std::vector<int64_t>& source, int64_t vocabulary, uint64_t line) {
  for (const int64_t id : source) {
    if (id >= 0 && id < vocabulary) continue;
    throw UserError({where_of(line), "a token id is outside the model's vocabulary",
                     "ids in 0.." + std::to_string(vocabulary - 1), std::to_string(id),
                     "encode the input with the model's own tokenizer"});
  }
}

}  // namespace

void require_length(const model::LanguageModel& model, int64_t prompt, const std::string& where) {
  const int64_t shortest = model::tokens_at_once(model);
  if (prompt >= shortest) return;
  throw UserError({.where = where,
                   .what = "nothing predicts a text's first block, and the prompt ends in it",
                   .expected = fmt::format("at least {} tokens, the block of {}", shortest, model.info().name),
                   .found = fmt::format("{} tokens", prompt),
                   .hint = "give longer prompts, or decode with another model than one of block prediction"});
}

Prompts::Prompts(const GenerationModels& models, const DecodeOptions& options,
                 const model::GenerationConfig& generation)
    : models_(models),
      options_(options),
      generation_(generation),
      target_(models.target->info()),
      drafter_(options.drafts() && models.drafter != nullptr ? models.drafter->model() : nullptr),
      context_{target_.max_positions, "the model " + target_.name} {
  const auto limit = [&](int64_t tokens, const std::string& owner, const std::string& lift = "") {
    if (tokens > 0 && (context_.tokens == 0 || tokens < context_.tokens)) context_ = {tokens, owner, lift};
  };
  if (drafter_ != nullptr) limit(drafter_->info().max_positions, "the drafter " + models.drafter->name());
  if (!max_new_tokens() && generation.max_length) {
    limit(*generation.max_length, "max_length in the model's generation_config.json",
          "--max-new-tokens lifts this limit");
  }
}

std::optional<int64_t> Prompts::max_new_tokens() const {
  return options_.max_new_tokens ? options_.max_new_tokens : generation_.max_new_tokens;
}

int64_t Prompts::wanted_tokens(int64_t prompt) const {
  if (const auto given = max_new_tokens()) return *given;
  return generation_.max_length ? std::max<int64_t>(1, *generation_.max_length - prompt) : kUsualNewTokens;
}

std::vector<int64_t> Prompts::prompt_of(const std::vector<int64_t>& source, int64_t dropped) const {
  if (target_.encoder_decoder) return {generation_.decoder_start};
  if (source.empty() && generation_.bos) return {*generation_.bos};
  std::vector<int64_t> prompt(source.begin() + dropped, source.end());
  if (dropped > 0 && generation_.bos && source.front() == *generation_.bos) prompt.front() = source.front();
  return prompt;
}

PromptFit Prompts::fit(const std::vector<int64_t>& source, uint64_t line) const {
  check_ids(source, target_.vocabulary, line);
  const auto prompt = static_cast<int64_t>(prompt_of(source, 0).size());
  if (prompt == 0) {
    throw UserError({where_of(line), "the prompt is empty and the model has no first token", "at least one token",
                     "none", "give a prompt"});
  }
  require_length(*models_.target, prompt, where_of(line));
  if (drafter_ != nullptr) require_length(*drafter_, prompt, where_of(line));
  return fit_prompt(prompt, wanted_tokens(prompt), context_, long_prompt_policies().at(options_.long_prompts),
                    where_of(line));
}

}  // namespace draftsmith::infer
