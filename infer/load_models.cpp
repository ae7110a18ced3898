#include "infer/load_models.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "infer/decode_options.h"

namespace draftsmith::infer {

namespace fs = std::filesystem;

LoadedModel load_model_directory(const fs::path& directory, const model::LoadOptions& options,
                                 const data::Languages& languages) {
  LoadedModel loaded{model::load_language_model(directory, options), directory, nullptr};
  if (data::has_tokenizer(directory)) {
    loaded.tokenizer = data::load_tokenizer(directory, languages);
    const model::TransformerModel& predicts = *model::transformers_of(*loaded.model).front();
    model::require_vocabulary_fits(predicts.config(), loaded.tokenizer->vocabulary(), directory.string());
    force_target_language(*loaded.tokenizer, loaded.generation);
  } else if (!languages.source_language.empty() || !languages.target_language.empty()) {
    tokenizer_of(loaded, "languages need a tokenizer: leave them out");
  }
  return loaded;
}

void force_target_language(const data::Tokenizer& tokenizer, model::GenerationConfig& settings) {
  if (const auto forced = tokenizer.frames().forced_bos) settings.forced_bos = *forced;
}

const data::Tokenizer& tokenizer_of(const LoadedModel& loaded, std::string_view hint) {
  if (loaded.tokenizer) return *loaded.tokenizer;
  throw UserError({.where = loaded.directory.string(),
                   .what = "the model's directory has no tokenizer, so text cannot be read",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json in the directory",
                   .found = "none of them",
                   .hint = std::string(hint)});
}

std::vector<int64_t> source_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info) {
  const std::vector<int32_t> before = tokenizer.frames().source.before;
  const std::vector<int32_t> pieces = tokenizer.encode(text);
  std::vector<int64_t> ids(before.begin(), before.end());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  if (info.encoder_decoder && !info.eos.empty()) ids.push_back(info.eos.front());
  return ids;
}

std::vector<std::vector<int64_t>> read_source_lines(const std::string& file, const LoadedModel& loaded, bool ids,
                                                    bool chat) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines = data::open_lines(file);
  std::optional<data::ChatTemplate> conversation;
  if (chat) conversation = data::load_chat_template(loaded.directory);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = tokenizer_of(loaded, "give token ids with --ids");
    if (chat) {
      const nlohmann::ordered_json message{{"role", "user"}, {"content", line}};
      const auto prompt =
          data::encode_chat(tokenizer, conversation->render(nlohmann::ordered_json::array({message}), true));
      result.emplace_back(prompt.begin(), prompt.end());
    } else {
      result.push_back(source_ids(line, tokenizer, info));
    }
  }
  return result;
}

model::GenerationConfig GenerationModels::settings() const {
  if (generation) return *generation;
  model::GenerationConfig settings;
  settings.eos_ids = target->info().eos;
  settings.pad = target->info().pad;
  settings.decoder_start = target->info().decoder_start;
  return settings;
}

std::unique_ptr<model::Exits> find_exits(const fs::path& directory, const model::LanguageModel& model,
                                         const fs::path& given) {
  const auto* transformer = dynamic_cast<const model::TransformerModel*>(&model);
  if (transformer == nullptr) return nullptr;
  const fs::path exits = given.empty() ? model::exits_directory(directory) : given;
  if (given.empty() && !model::holds_exits(exits)) return nullptr;
  return model::load_exits(exits, directory, *transformer);
}

std::string fingerprint_of(const fs::path& path) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (!entry.is_regular_file()) return;
    files[entry.path().filename()] =
        fmt::format("{}:{}", entry.file_size(), entry.last_write_time().time_since_epoch().count());
  };
  add(fs::directory_entry(path));
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) add(entry);
  }
  return fmt::format("{} {}", path.string(), files);
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

const NamedValues<LongPrompts>& long_prompt_policies() {
  static const NamedValues<LongPrompts> kPolicies(
      "policy for long prompts",
      {{"error", LongPrompts::kError}, {"truncate-left", LongPrompts::kTruncateLeft}, {"skip", LongPrompts::kSkip}});
  return kPolicies;
}

PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where) {
  if (context.tokens == 0) return {.wanted = wanted, .room = wanted};
  if (policy == LongPrompts::kTruncateLeft) {
    const int64_t half = std::max<int64_t>((context.tokens + 1) / 2, 1);
    const int64_t kept = std::min({prompt, std::max(context.tokens - wanted, half), context.tokens - 1});
    if (kept > 0) return {.dropped = prompt - kept, .wanted = wanted, .room = std::min(wanted, context.tokens - kept)};
  } else if (prompt < context.tokens) {
    return {.wanted = wanted, .room = std::min(wanted, context.tokens - prompt)};
  } else if (policy == LongPrompts::kSkip) {
    return {.wanted = wanted, .skipped = true};
  }
  throw UserError({.where = where,
                   .what = "the prompt leaves no room for a new token in the context of " + context.owner,
                   .expected = fmt::format("fewer than {} tokens", context.tokens),
                   .found = fmt::format("{} tokens", prompt),
                   .hint = "shorten the prompt, or choose --long-prompts truncate-left or skip" +
                           (context.lift.empty() ? "" : "; " + context.lift)});
}

Prompts::Prompts(const GenerationModels& models, const DecodeOptions& options,
                 const model::GenerationConfig& generation)
    : models_(models),
      options_(options),
      generation_(generation),
      target_(models.target->info()),
      drafter_(options.drafts() && models.drafter != nullptr ? models.drafter->model() : nullptr),
      context_{target_.max_positions, "the model " + target_.name} {
  if (max_new_tokens() || !generation.max_length) return;
  if (context_.tokens == 0 || *generation.max_length < context_.tokens) {
    context_ = {*generation.max_length, "max_length in the model's generation_config.json",
                "--max-new-tokens lifts this limit"};
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

// An encoder has no room for new tokens to keep: its input is read whole or not at all.
PromptFit Prompts::fit_source(int64_t tokens, uint64_t line) const {
  const PromptFit fit{.wanted = wanted_tokens(1), .skipped = true};
  if (long_prompt_policies().at(options_.long_prompts) == LongPrompts::kSkip) return fit;
  throw UserError({.where = where_of(line),
                   .what = "the input is longer than the positions of the model " + target_.name,
                   .expected = fmt::format("at most {} tokens", target_.max_positions),
                   .found = fmt::format("{} tokens", tokens),
                   .hint = "shorten the input, or choose --long-prompts skip"});
}

PromptFit Prompts::fit(const std::vector<int64_t>& source, uint64_t line) const {
  check_ids(source, target_.vocabulary, line);
  const bool encodes = target_.encoder_decoder && target_.max_positions > 0;
  if (encodes && std::ssize(source) > target_.max_positions) return fit_source(std::ssize(source), line);
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
