#include "recipes/export/alpha_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "data/text/readers.h"
#include "data/tokenizers/load_tokenizer.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "infer/loop/vocabulary.h"
#include "model/files/checkpoint.h"
#include "recipes/export/probes.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Default text: enough to see that nothing changed, but not to measure a drafter.
constexpr const char* kSentences[] = {"A man rides a bicycle down the street.",
                                      "Two children are playing football in the park.",
                                      "Once upon a time there was a little girl who lived by the sea.",
                                      "Eine Frau liest ein Buch auf einer Bank.",
                                      "The results of the election were announced on Sunday evening.",
                                      "He opened the door, and behind it there was nothing but snow."};

std::unique_ptr<data::Tokenizer> tokenizer_in(const fs::path& directory) {
  return data::has_tokenizer(directory) ? data::load_tokenizer(directory) : nullptr;
}

void require_text_readable(const fs::path& text, const fs::path& target, const data::Tokenizer* tokenizer) {
  if (text.empty() || tokenizer != nullptr) return;
  throw UserError({.where = target.string(),
                   .what = "the target's directory has no tokenizer, so --text cannot be read",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json in it",
                   .hint = "omit --text to compare alpha on random ids"});
}

// Leaves half of a small context to the prompt.
int64_t new_tokens(const model::ModelInfo& info) {
  const int64_t most = AlphaCheck::kNewTokens;
  return info.max_positions > 0 ? std::clamp<int64_t>(info.max_positions / 2, 1, most) : most;
}

// Returns the first lines that leave room for an output.
std::vector<std::vector<int64_t>> read_sources(const fs::path& text, const data::Tokenizer& tokenizer,
                                               const model::ModelInfo& info) {
  const auto lines =
      text.empty() ? std::vector<std::string>(std::begin(kSentences), std::end(kSentences)) : data::read_lines(text);
  std::vector<std::vector<int64_t>> sources;
  for (const std::string& line : lines) {
    auto ids = infer::source_ids(line, tokenizer, info);
    const bool fits = info.max_positions == 0 || std::ssize(ids) + new_tokens(info) <= info.max_positions;
    if (!ids.empty() && fits) sources.push_back(std::move(ids));
    if (sources.size() == AlphaCheck::kLines) return sources;
  }
  if (!sources.empty()) return sources;
  throw UserError({.where = text.empty() ? info.name : text.string(),
                   .what = text.empty() ? "the target has no room for a sentence and an output"
                                        : "has no line that fits into the target's context",
                   .expected = fmt::format("lines that leave room for {} new tokens", new_tokens(info)),
                   .found = fmt::format("{} lines, all empty or too long", lines.size())});
}

// Throws UserError unless target and drafter have the same vocabulary and are of the same kind.
void require_drafts_for(const model::ModelInfo& target, const data::Tokenizer* tokenizer, const fs::path& model) {
  const auto config = model::load_config(model);
  model::ModelInfo drafter = target;  // only vocabularies are compared
  drafter.name = model.string();
  drafter.vocabulary = config.vocabulary;
  Problems problems;
  infer::compare_vocabularies(target, drafter, tokenizer, tokenizer_in(model).get(), problems);
  if (config.encoder_decoder != target.encoder_decoder) {
    problems.add({.where = "--target " + target.name,
                  .what = "target and model are of different kinds",
                  .expected = config.encoder_decoder ? "an encoder-decoder model" : "a decoder-only model",
                  .found = target.encoder_decoder ? "an encoder-decoder model" : "a decoder-only model"});
  }
  problems.throw_if_any();
}

}  // namespace

AlphaCheck::AlphaCheck(const fs::path& target, const fs::path& model, const fs::path& text, at::Device device) {
  const auto tokenizer = tokenizer_in(target);
  require_text_readable(text, target, tokenizer.get());
  target_ = model::load_model(target, {.device = device});
  require_drafts_for(target_->info(), tokenizer.get(), model);
  if (tokenizer != nullptr) {
    sources_ = read_sources(text, *tokenizer, target_->info());
    described_ = text.empty() ? "a few general sentences (--text names others)"
                              : fmt::format("{} lines of {}", sources_.size(), text.filename().string());
  } else {
    const Probes probes = make_probes(target_->config());
    sources_ = target_->info().encoder_decoder ? probes.sources : probes.targets;
    const auto room = static_cast<size_t>(target_->info().max_positions - new_tokens(target_->info()));
    for (auto& source : sources_) {
      if (target_->info().max_positions > 0 && source.size() > room) source.resize(room);
    }
    described_ = "random ids";
  }
  make_outputs();
}

AlphaCheck::~AlphaCheck() = default;

void AlphaCheck::make_outputs() {
  infer::DecodeOptions options;
  options.method = "greedy";
  options.max_new_tokens = new_tokens(target_->info());
  infer::GenerationModels models;
  models.target = target_.get();
  infer::Generator generator(std::move(models), options);
  auto results = generator.generate(sources_);
  infer::throw_if_failed(results);
  for (auto& result : results) outputs_.push_back(std::move(result.ids));
}

infer::ForcedAlpha AlphaCheck::measure(model::TransformerModel& drafter) const {
  return infer::measure_forced_alpha({*target_, drafter}, sources_, outputs_, {.temperature = 1});
}

}  // namespace draftsmith::recipes
