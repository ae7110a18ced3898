#include "evaluate/engine/prompts.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/chat/chat_tokens.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::evaluate {
namespace {

constexpr const char* kOwnIds = "ids = true needs ids made with the model's own tokenizer";

template <class Ids>
void append(const Ids& ids, Prompt& prompt) {
  prompt.insert(prompt.end(), ids.begin(), ids.end());
}

bool is_eos(const infer::LoadedModel& target, int64_t id) {
  const auto& eos = target.model->info().eos;
  return std::find(eos.begin(), eos.end(), id) != eos.end();
}

const data::Tokenizer& tokenizer_of(const infer::LoadedModel& target) {
  if (target.tokenizer) return *target.tokenizer;
  throw UserError({.where = target.directory.string(),
                   .what = "the model has no tokenizer, so it cannot read text",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json",
                   .found = "none of them",
                   .hint = "tasks with ids = true need none"});
}

}  // namespace

data::ChatTemplate& PromptEncoder::chat() const {
  if (!chat_) chat_ = data::load_chat_template(target_.directory);
  return *chat_;
}

PromptEncoder::Whole PromptEncoder::whole(const std::string& source, const TaskOptions& task) const {
  const auto& info = target_.model->info();
  Whole whole;
  if (task.ids) {
    whole.text = data::parse_token_ids(source, info.vocabulary, "", kOwnIds);
    if (!whole.text.empty() && is_eos(target_, whole.text.back())) {
      whole.end.push_back(whole.text.back());
      whole.text.pop_back();
    }
    return whole;
  }
  const data::Tokenizer& tokenizer = tokenizer_of(target_);
  if (task.chat || !task.messages.empty()) {
    append(data::encode_chat(tokenizer, chat().render(nlohmann::ordered_json::parse(source), true)), whole.text);
  } else {
    if (!info.encoder_decoder) append(tokenizer.frame().before, whole.text);
    append(tokenizer.encode(source), whole.text);
  }
  if (!task.suffix.empty()) append(tokenizer.encode(task.suffix), whole.end);
  if (info.encoder_decoder) whole.end.push_back(tokenizer.eos());
  return whole;
}

Prompt PromptEncoder::prompt(const std::string& source, const TaskOptions& task, bool& cut) const {
  auto [prompt, end] = whole(source, task);
  const auto room = task.max_source_tokens - std::ssize(end);
  if (task.max_source_tokens > 0 && room < 1) {
    throw UserError({.where = "",
                     .what = "max_source_tokens leaves no room for the source",
                     .expected = fmt::format("more than {} tokens: its suffix and EOS", end.size()),
                     .found = fmt::format("{}", task.max_source_tokens),
                     .hint = ""});
  }
  cut = task.max_source_tokens > 0 && std::ssize(prompt) > room;
  if (cut) prompt.resize(static_cast<size_t>(room));
  append(end, prompt);
  return prompt;
}

std::vector<int64_t> PromptEncoder::rest(const std::string& source, const TaskOptions& task) const {
  if (target_.model->info().encoder_decoder || task.max_source_tokens == 0) return {};
  auto [text, end] = whole(source, task);
  if (!end.empty() || std::ssize(text) <= task.max_source_tokens) return {};
  text.erase(text.begin(), text.begin() + task.max_source_tokens);
  if (!task.ids) text.push_back(tokenizer_of(target_).eos());
  return text;
}

std::vector<int64_t> encode_output(const infer::LoadedModel& target, const std::string& reference,
                                   const TaskOptions& task) {
  std::vector<int64_t> ids;
  if (!task.ids) {
    const data::Tokenizer& tokenizer = tokenizer_of(target);
    append(tokenizer.encode(reference), ids);
    ids.push_back(tokenizer.eos());
    return ids;
  }
  ids = data::parse_token_ids(reference, target.model->info().vocabulary, "", kOwnIds);
  if (!ids.empty() && is_eos(target, ids.back())) return ids;
  const auto& eos = target.generation.eos_ids;
  if (!eos.empty()) ids.push_back(eos.front());
  return ids;
}

std::string output_text(const infer::LoadedModel& target, const std::vector<int64_t>& generated, bool ids) {
  if (!ids) return infer::text_of_known(tokenizer_of(target), generated);
  auto shown = generated;
  if (!shown.empty() && is_eos(target, shown.back())) shown.pop_back();
  return fmt::format("{}", fmt::join(shown, " "));
}

}  // namespace draftsmith::evaluate
