#include "recipes/starter/starter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/theory/formulas.h"
#include "model/files/model_directory.h"

namespace draftsmith::recipes {

namespace {

struct Task {
  const char* name;
  int64_t max_new_tokens;  // of outputs, as recipes of such tasks have it
  bool needs_text;
  const char* text;  // what --text must hold
};
constexpr std::array<Task, 4> kTasks = {{
    {"chat", 128, false, "what users ask, one message a line"},
    {"translation", 64, true, "sources to translate, one a line, as the model reads them"},
    {"summarization", 96, true, "texts to summarize, one a line, with the words that ask for it"},
    {"text", 128, false, "beginnings of text, one a line"},
}};

// Rates and batches by family and width, from recipes of such models that were measured.
struct TrainingDefaults {
  bool t5;         // scores are not scaled
  int64_t widest;  // width of models that the row is for
  double lr;
  int64_t token_budget;
  const char* source;
};
constexpr std::array<TrainingDefaults, 4> kDefaults = {{
    {true, 256, 1e-3, 512, "recipes/quickstart.toml"},
    {true, 1 << 30, 7e-4, 2048, "recipes/dialogsum_bild.toml; no model as wide was measured"},
    {false, 256, 1e-3, 4096, "recipes/dialogsum_prompts.toml"},
    {false, 1 << 30, 3e-4, 2048, "a third of recipes/dialogsum_prompts.toml; no model as wide was measured"},
}};

constexpr int64_t kFewestLines = 100;    // of text: a fifth is measured, the rest trained on
constexpr int64_t kFewestPrompts = 300;  // to train on
constexpr int64_t kMostPrompts = 20000;  // that a model writes
constexpr int64_t kEpochs = 4;           // as the tutorial's alignment
constexpr double kPlanned = 0.9;         // share of the hours: times are estimates
constexpr double kEvaluated = 0.3;       // share of the hours for evaluation, at most

const Task& task_of(const std::string& name) {
  const auto found = std::ranges::find(kTasks, name, &Task::name);
  if (found != kTasks.end()) return *found;
  throw UserError(unknown_name("task", name, {"chat", "translation", "summarization", "text"}, "--task"));
}

void check_task(const Starter& starter, const StarterOptions& options, bool has_template, Problems& problems) {
  const Task& task = task_of(starter.task);
  if (starter.task == "chat" && !has_template) {
    problems.add({"--task", "chat needs a chat template, which the target does not have",
                  "chat_template.jinja in the model directory, or another task", "chat", ""});
  }
  if (!options.text.empty() || (!task.needs_text && !starter.config.encoder_decoder)) return;
  problems.add({"--text", "only a decoder-only model can write prompts itself, for chat and text",
                fmt::format("files with {}", task.text), "none, for " + starter.task,
                "a thousand lines are enough to begin with"});
}

// Counts the different lines of the text. Adds a problem if they are few, and for a line that is too long.
void read_text(Starter& starter, const StarterOptions& options, Problems& problems) {
  constexpr int64_t kTemplate = 32;  // tokens that a chat template adds, about
  const int64_t room = starter.config.max_positions - (starter.chat ? kTemplate : 1) -
                       (starter.config.encoder_decoder ? 0 : starter.max_new_tokens);
  std::set<std::string> different;
  for (const auto& file : options.text) {
    int64_t number = 0;
    for (const std::string& line : data::read_lines(file)) {
      ++number;
      if (line.empty() || !different.insert(line).second || starter.config.max_positions == 0) continue;
      const int64_t tokens = std::ssize(starter.loaded.tokenizer->encode(line));
      if (tokens <= room) continue;
      problems.add({fmt::format("{}:{}", file.string(), number), "the prompt leaves the target no room for its answer",
                    fmt::format("at most {} tokens", room), std::to_string(tokens), "shorten it, or leave it out"});
      return;
    }
  }
  starter.lines = std::ssize(different);
  if (options.text.empty() || starter.lines >= kFewestLines) return;
  problems.add({options.text.front().string(), "the text is too little to train on some lines and to measure others",
                fmt::format("{} different lines in all files", kFewestLines), std::to_string(starter.lines), ""});
}

// Sets prompts, held-out prompts and times for a candidate. Returns the hours that its least training takes.
double plan(Starter& starter, const Candidate& candidate, double seconds) {
  constexpr double kPasses = 12;     // over held-out prompts: five settings count, and time each line more than once
  constexpr double kOwnTokens = 96;  // of a prompt that the target writes, with those that are thrown away
  const bool writes = starter.lines == 0;
  const auto tokens = static_cast<double>(starter.max_new_tokens);
  const double line = kPasses * tokens * starter.step;
  starter.held_out = std::clamp<int64_t>(static_cast<int64_t>(kEvaluated * seconds / line), 20, 200);
  if (!writes) starter.held_out = std::min(starter.held_out, starter.lines / 5);
  starter.evaluation_seconds = line * static_cast<double>(starter.held_out);
  const double token = starter.batch_step / static_cast<double>(kBatch);
  const double prompt = writes ? kOwnTokens * token : 0;
  const double training = kEpochs * candidate.example_seconds;
  const double all = prompt + tokens * token + training;
  const int64_t most = writes ? kMostPrompts : starter.lines - starter.held_out;
  const double rest = std::max(0.0, kPlanned * seconds - starter.evaluation_seconds);
  starter.prompts = static_cast<int64_t>(std::min(rest / all, static_cast<double>(most)));
  const auto count = static_cast<double>(starter.prompts);
  starter.prompts_seconds = prompt * count;
  starter.answers_seconds = tokens * token * count;
  starter.training_seconds = training * count;
  const double least = all * static_cast<double>(std::min(kFewestPrompts, most)) + 20 * line;
  return 1.02 * least / (kPlanned - kEvaluated) / 3600;
}

// Requires room for corpora and for the drafter: pruned, trained, its checkpoint and its export.
void require_disk(const Starter& starter, const std::filesystem::path& out) {
  const int64_t numbers = 7 * starter.candidates[starter.chosen].numbers + 8 * starter.prompts * starter.max_new_tokens;
  const uint64_t needed = 4 * static_cast<uint64_t>(numbers);
  const uint64_t free = disk_free(std::filesystem::absolute(out).parent_path());
  if (free >= needed) return;
  throw UserError({out.string(), "the disk has no room for the recipe's models and corpora", human_bytes(needed),
                   human_bytes(free), "write and run the recipe on another disk"});
}

double promise(const Candidate& candidate) {
  return evaluate::best_window(candidate.alpha, candidate.costs, kLongestWindow).speedup;
}

std::string quoted_path(const std::filesystem::path& path) {
  return toml_quoted(std::filesystem::canonical(path).string());
}

std::string minutes(double seconds) {
  return fmt::format("{:.1f} minutes", seconds / 60);
}

// Returns keys of T5's parameters: scores are not scaled, so queries learn at lr / sqrt(head_width).
std::string optimizer_groups(const model::TransformerConfig& config) {
  std::string text = fmt::format("\ngroups = [\n  {{ parameters = \"*.query.weight\", lr_factor = {:.3f} }},",
                                 1 / std::sqrt(static_cast<double>(config.head_width)));
  for (const char* name : {"embedding", "head"}) {
    if (config.tied_head && std::string(name) == "head") continue;
    text += fmt::format("\n  {{ parameters = \"{}.weight\", lr_factor = 3.0 }},", name);
  }
  return text + "\n]";
}

}  // namespace

Starter look_at(const StarterOptions& options, at::Device device) {
  if (std::filesystem::exists(options.out)) {
    throw UserError({options.out.string(), "exists already, and is not overwritten", "the name of a new file in --out",
                     "", "remove it, or choose another name"});
  }
  if (!options.task.empty()) task_of(options.task);
  Starter starter{.loaded = infer::load_model_directory(options.target,
                                                        {.device = device, .dtype = parse_weight_type(options.dtype)}),
                  .config = model::read_settings(options.target, &model::ordinary_kind()).config};
  infer::tokenizer_of(starter.loaded, "prompts are text: put the model's tokenizer into its directory");
  const bool has_template = !starter.config.encoder_decoder && data::find_chat_template(options.target).has_value();
  const char* usual = starter.config.encoder_decoder ? "translation" : has_template ? "chat" : "text";
  starter.task = options.task.empty() ? usual : options.task;
  starter.chat = has_template && starter.task != "text";
  starter.max_new_tokens = task_of(starter.task).max_new_tokens;
  if (const int64_t most = starter.config.max_positions; most > 0) {
    starter.max_new_tokens = std::clamp<int64_t>(most / 2, 1, starter.max_new_tokens);
  }
  Problems problems;
  check_task(starter, options, has_template, problems);
  read_text(starter, options, problems);
  problems.throw_if_any();
  return starter;
}

void choose(Starter& starter, const StarterOptions& options) {
  const double seconds = 3600 * options.hours;
  double fewest = std::numeric_limits<double>::infinity();
  std::vector<size_t> fitting;
  for (size_t i = 0; i < starter.candidates.size(); ++i) {
    const double needed = plan(starter, starter.candidates[i], seconds);
    fewest = std::min(fewest, needed);
    if (needed <= options.hours) fitting.push_back(i);
  }
  if (fitting.empty()) {
    throw UserError({"--hours", "the hours are too few to train any drafter and to measure it",
                     fmt::format("{:.3g} or more on this machine", fewest), fmt::format("{:g}", options.hours), ""});
  }
  starter.chosen = *std::ranges::max_element(fitting, {}, [&](size_t i) { return promise(starter.candidates[i]); });
  plan(starter, starter.candidates[starter.chosen], seconds);
  require_disk(starter, options.out);
}

std::string recipe_text(const Starter& starter, const StarterOptions& options) {
  const model::TransformerConfig& config = starter.config;
  const Candidate& drafter = starter.candidates[starter.chosen];
  const TrainingDefaults& defaults = *std::ranges::find_if(kDefaults, [&](const TrainingDefaults& row) {
    return row.t5 == (config.attention_scale == 1) && config.width <= row.widest;
  });
  std::string speedups;
  for (const double alpha : {0.5, 0.6, 0.7, 0.8}) {
    const double speedup = evaluate::best_window(alpha, drafter.costs, kLongestWindow).speedup;
    speedups += fmt::format("{}{:.2f} at {:g}", speedups.empty() ? "" : ", ", speedup, alpha);
  }
  std::vector<std::string> files;
  for (const auto& file : options.text) files.push_back(quoted_path(file));
  const bool half = options.dtype == "bf16" || options.dtype == "fp16";
  const int64_t window = evaluate::best_window(drafter.alpha, drafter.costs, kLongestWindow).window;
  const std::vector<std::pair<const char*, std::string>> values = {
      {"<name>", toml_quoted(options.out.stem().string())},
      {"<file>", options.out.string()},
      {"<target>", quoted_path(options.target)},
      {"<layers>", fmt::format("{} of {}", drafter.layers, config.decoder_layers)},
      {"<ratio>", fmt::format("{:.2f}", drafter.costs.cost_ratio())},
      {"<speedups>", speedups},
      {"<text>", files.empty() ? "" : fmt::format("\ntext = [{}]", fmt::join(files, ", "))},
      {"<chat>", starter.chat ? "\nchat = true" : ""},
      {"<count>", std::to_string(starter.prompts)},
      {"<held-out>", std::to_string(starter.held_out)},
      {"<form>", starter.chat             ? "\nmessages = \"messages\""
                 : config.encoder_decoder ? ""
                                          : "\nprompts = true"},
      {"<tokens>", std::to_string(starter.max_new_tokens)},
      {"<batch>", std::to_string(kBatch)},
      {"<answers-dtype>", half ? "\ndtype = \"" + options.dtype + "\"" : ""},
      {"<dtype>", options.dtype},
      {"<decoder-layers>", drafter.decoder_layers},
      {"<encoder-layers>", config.encoder_decoder ? "\nencoder_layers = \"" + drafter.encoder_layers + "\"" : ""},
      {"<epochs>", std::to_string(kEpochs)},
      {"<budget>", std::to_string(defaults.token_budget)},
      {"<lr>", fmt::format("{:g}", defaults.lr)},
      {"<source>", defaults.source},
      {"<groups>", defaults.t5 ? optimizer_groups(config) : ""},
      {"<timing>", fmt::format("{:.3g}", std::clamp(starter.evaluation_seconds / 120, 0.05, 10.0))},
      {"<window>", std::to_string(std::max<int64_t>(1, window))},
      {"<format>", options.format},
      {"<prompts-time>", minutes(starter.prompts_seconds)},
      {"<answers-time>", minutes(starter.answers_seconds)},
      {"<training-time>", minutes(starter.training_seconds)},
      {"<evaluation-time>", minutes(starter.evaluation_seconds)},
  };
  std::string text(starter_texts().front().text);
  for (const auto& [name, value] : values) text = replace_all(text, name, value);
  return text;
}

}  // namespace draftsmith::recipes
