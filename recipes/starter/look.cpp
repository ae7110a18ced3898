// The first look at a target and its text: what is refused before anything is measured.
#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/util.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/load_models.h"
#include "model/transformer/parameters.h"
#include "recipes/starter/starter.h"

namespace draftsmith::recipes {

namespace {

struct Task {
  const char* name;
  int64_t max_new_tokens;  // of outputs, as recipes of such tasks have it
  int64_t prompt_tokens;   // of the longest prompt; of beginnings: their tokens
  const char* text;        // what --text must hold
};
constexpr std::array<Task, 4> kTasks = {{
    {"chat", 128, 256, "what users ask, one message a line"},
    {"translation", 64, 128, "sources to translate, one a line"},
    {"summarization", 96, 512, "texts to summarize, one a line, with the prefix that the model expects"},
    {"text", 128, 16, "text to continue, one beginning a line"},
}};

constexpr int64_t kFewestLines = 100;  // of text: a fifth is measured, the rest trained on

const Task& task_of(const std::string& name) {
  const auto found = std::ranges::find(kTasks, name, &Task::name);
  if (found != kTasks.end()) return *found;
  throw UserError(unknown_name("task", name, {"chat", "translation", "summarization", "text"}, "--task"));
}

std::string usual_task(const Target& target, bool has_template) {
  if (target.config.encoder_decoder) return "translation";
  return has_template ? "chat" : "text";
}

PromptForm form_of(const Target& target, bool has_template) {
  if (target.config.encoder_decoder) return PromptForm::kSources;
  if (has_template && target.task != "text") return PromptForm::kChat;
  return target.task == "text" ? PromptForm::kBeginnings : PromptForm::kSources;
}

void check_task(const Target& target, const StarterOptions& options, bool has_template, Problems& problems) {
  const Task& task = task_of(target.task);
  if (target.task == "chat" && !has_template) {
    problems.add({.where = "--task",
                  .what = "chat needs a chat template, which the target does not have",
                  .expected = "a chat_template.jinja in " + options.target.string() + ", or another task",
                  .found = "chat"});
  }
  const bool writes = !target.config.encoder_decoder && (target.task == "chat" || target.task == "text");
  if (options.text.empty() && !writes) {
    problems.add({.where = "--text",
                  .what = target.config.encoder_decoder ? "an encoder-decoder cannot write its own sources"
                                                        : "a model's own prompts are no " + target.task,
                  .expected = std::string("files with ") + task.text,
                  .found = "no text",
                  .hint = "a thousand lines are enough to begin with"});
  }
}

// Returns the number of different lines of all files that are prompts: not empty, and no longer than they may be.
int64_t count_prompts(const Target& target, const std::vector<std::filesystem::path>& files) {
  std::set<std::string> different;
  for (const auto& file : files) {
    for (std::string& line : data::read_lines(file)) {
      const bool fits = target.form == PromptForm::kBeginnings ||
                        std::ssize(target.loaded.tokenizer->encode(line)) <= target.prompt_tokens;
      if (!line.empty() && fits) different.insert(std::move(line));
    }
  }
  return std::ssize(different);
}

void check_text(const Target& target, const StarterOptions& options, Problems& problems) {
  if (options.text.empty() || target.lines >= kFewestLines) return;
  problems.add({.where = options.text.front().string(),
                .what = "the text is too little to train on some lines and to measure others",
                .expected = fmt::format("{} different lines or more in all files, of at most {} tokens", kFewestLines,
                                        target.prompt_tokens),
                .found = fmt::format("{}", target.lines),
                .hint = std::string("--text takes ") + task_of(target.task).text});
}

}  // namespace

Target look_at(const StarterOptions& options, at::Device device) {
  if (std::filesystem::exists(options.out)) {
    throw UserError({.where = options.out.string(),
                     .what = "exists already, and is not overwritten",
                     .expected = "the name of a new file in --out",
                     .hint = "remove it, or choose another name"});
  }
  if (!options.task.empty()) task_of(options.task);
  Target target{.loaded = infer::load_model_directory(options.target,
                                                      {.device = device, .dtype = parse_weight_type(options.dtype)}),
                .config = model::read_settings(options.target, &model::ordinary_kind()).config};
  infer::tokenizer_of(target.loaded, "a drafter learns from text: put the model's tokenizer into its directory");
  const bool has_template = data::find_chat_template(options.target).has_value();
  target.task = options.task.empty() ? usual_task(target, has_template) : options.task;
  target.form = form_of(target, has_template);
  target.max_new_tokens = task_of(target.task).max_new_tokens;
  target.prompt_tokens = task_of(target.task).prompt_tokens;
  if (const int64_t positions = target.config.max_positions; positions > 0) {
    target.max_new_tokens = std::min(target.max_new_tokens, std::max<int64_t>(1, positions / 2));
    // Half of the rest is for what a template adds.
    const int64_t room = std::max<int64_t>(1, (positions - target.max_new_tokens) / 2);
    target.prompt_tokens = std::min(target.prompt_tokens, room);
  }
  target.lines = count_prompts(target, options.text);
  Problems problems;
  check_task(target, options, has_template, problems);
  check_text(target, options, problems);
  problems.throw_if_any();
  return target;
}

std::string describe(const Target& target) {
  const model::TransformerConfig& config = target.config;
  const std::string layers = config.encoder_decoder
                                 ? fmt::format("{} + {} layers", config.encoder_layers, config.decoder_layers)
                                 : fmt::format("{} layers", config.decoder_layers);
  constexpr std::array<const char*, 3> kForms = {"sources", "messages in its chat template", "beginnings of text"};
  return fmt::format(
      "{}, {} of width {}, {:.1f} M parameters, {} ids (tokenizer: {})\n{}: it reads {}, {}\n", config.family, layers,
      config.width, static_cast<double>(model::count_numbers(config)) / 1e6, config.vocabulary,
      target.loaded.tokenizer->vocabulary(), target.task, kForms[static_cast<size_t>(target.form)],
      target.writes_prompts() ? "which it writes itself" : fmt::format("{} different lines of text", target.lines));
}

}  // namespace draftsmith::recipes
