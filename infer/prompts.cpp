#include "infer/prompts.h"

#include <algorithm>

#include <fmt/format.h>

#include "infer/drafters/drafter.h"
#include "model/kinds/language_models.h"

namespace draftsmith::infer {
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

// Returns the context that holds every prompt with its new tokens. `max_length` limits it where new tokens do not.
Context context_of(const GenerationModels& models, const DecodeOptions& options, std::optional<int64_t> max_length) {
  const model::ModelInfo& target = models.target->info();
  Context context{target.max_positions, "the model " + target.name};
  const auto limit = [&](int64_t tokens, const std::string& owner, const std::string& lift = "") {
    if (tokens > 0 && (context.tokens == 0 || tokens < context.tokens)) context = {tokens, owner, lift};
  };
  if (options.drafts() && models.drafter != nullptr && models.drafter->model() != nullptr) {
    limit(models.drafter->model()->info().max_positions, "the drafter " + models.drafter->name());
  }
  if (max_length) {
    limit(*max_length, "max_length in the model's generation_config.json", "--max-new-tokens lifts this limit");
  }
  return context;
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
    : target_(models.target),
      drafter_(options.drafts() && models.drafter != nullptr ? models.drafter->model() : nullptr),
      vocabulary_(models.target->info().vocabulary),
      encoder_decoder_(models.target->info().encoder_decoder),
      decoder_start_(generation.decoder_start),
      bos_(generation.bos),
      policy_(long_prompt_policies().at(options.long_prompts)),
      max_new_tokens_(options.max_new_tokens ? options.max_new_tokens : generation.max_new_tokens) {
  if (!max_new_tokens_) max_length_ = generation.max_length;
  context_ = context_of(models, options, max_length_);
}

int64_t Prompts::wanted_tokens(int64_t prompt) const {
  if (max_new_tokens_) return *max_new_tokens_;
  return max_length_ ? std::max<int64_t>(1, *max_length_ - prompt) : kUsualNewTokens;
}

std::vector<int64_t> Prompts::prompt_of(const std::vector<int64_t>& source, int64_t dropped) const {
  if (encoder_decoder_) return {decoder_start_};
  if (source.empty() && bos_) return {*bos_};
  std::vector<int64_t> prompt(source.begin() + dropped, source.end());
  if (dropped > 0 && bos_ && source.front() == *bos_) prompt.front() = *bos_;
  return prompt;
}

PromptFit Prompts::fit(const std::vector<int64_t>& source, uint64_t line) const {
  check_ids(source, vocabulary_, line);
  const auto prompt = static_cast<int64_t>(prompt_of(source, 0).size());
  if (prompt == 0) {
    throw UserError({where_of(line), "the prompt is empty and the model has no first token", "at least one token",
                     "none", "give a prompt"});
  }
  require_length(*target_, prompt, where_of(line));
  if (drafter_ != nullptr) require_length(*drafter_, prompt, where_of(line));
  return fit_prompt(prompt, wanted_tokens(prompt), context_, policy_, where_of(line));
}

}  // namespace draftsmith::infer
