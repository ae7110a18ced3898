#include "infer/generation_settings.h"

#include "infer/loop/vocabulary.h"

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

}  // namespace draftsmith::infer
