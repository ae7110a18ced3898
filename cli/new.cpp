// `draftsmith new`: a recipe that gives a model a drafter. Looks at the model and the text, measures candidates here
// (cli/candidates.h), chooses one by theory, and fills in new_recipe.template. Stages that no other recipe has are in
// recipes/stages/starter_stages.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/child_process.h"
#include "base/device.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/table.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "cli/application.h"
#include "cli/candidates.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/costs/step_costs.h"
#include "infer/load_models.h"
#include "metrics/text.h"
#include "model/files/model_directory.h"
#include "model/transformer/parameters.h"
#include "recipes/import/import_gguf.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct NewFlags {
  fs::path target;
  std::vector<fs::path> text;
  std::string task;  // empty: what the target is for
  std::string kind;  // of the drafter; "any"; empty: one that goes out in `format`
  double hours = 1;
  std::optional<double> alpha;  // assumed of every drafter; absent: by task and layers
  fs::path out = "recipe.toml";
  std::string dtype = "fp32";
  std::string format = "hf";  // of the export
  data::Languages languages;
  ExecutionOptions execution;

  // Returns the type in which stages write prompts and answers; int8 and fp64 are those of evaluations alone.
  std::string written_dtype() const { return dtype == "bf16" || dtype == "fp16" ? dtype : "fp32"; }
};

struct Task {
  const char* name;
  int64_t max_new_tokens;  // of outputs, as recipes of such tasks have it
  bool own;                // decoder-only models can write its prompts, and sample their answers
  double alpha;            // accepted drafts of one layer that are assumed: docs/reference/training.md
  const char* text;        // what --text must hold
};
constexpr std::array<Task, 4> kTasks = {{
    {"chat", 128, true, 0.25, "what users ask, one message a line"},
    {"translation", 64, false, 0.7, "sources to translate, one a line, as the model reads them"},
    {"summarization", 96, false, 0.7, "texts to summarize, one a line, with the words that ask for it"},
    {"text", 128, true, 0.25, "beginnings of text, one a line"},
}};
constexpr double kAlphaDoubled = 0.05;  // more for twice as many layers

// Rates and batches by family and width; docs/reference/training.md has their evidence.
struct TrainingDefaults {
  bool t5;         // scores are not scaled
  int64_t widest;  // width of models that the row is for
  double lr;
  int64_t token_budget;
  const char* source;
};
constexpr std::array<TrainingDefaults, 5> kDefaults = {{
    {true, 256, 1e-3, 512, "recipes/quickstart.toml"},
    {true, 1 << 30, 7e-4, 1024, "recipes/multi30k.toml; no model as wide was measured"},
    {false, 256, 1e-3, 512, "recipes/specgame.toml"},
    {false, 640, 1e-3, 1024, "recipes/smollm2.toml"},
    {false, 1 << 30, 3e-4, 1024, "nothing: no model as wide was measured"},
}};

constexpr int64_t kFewestLines = 100;    // of text: a fifth is measured, the rest trained on
constexpr int64_t kFewestPrompts = 300;  // to train on
constexpr int64_t kMostPrompts = 20000;  // that a model writes
constexpr int64_t kBatch = 64;           // of teacher outputs, by default
constexpr double kEpochs = 4;            // and up to four times as many where hours are left
constexpr int64_t kLongestWindow = 8;
constexpr double kPlanned = 0.9;    // share of the hours: times are estimates
constexpr double kEvaluated = 0.3;  // share of the hours for evaluation, at most

// The numbers of prompts, and the times of stages in seconds.
struct Schedule {
  int64_t prompts = 0;   // to train on
  int64_t held_out = 0;  // to measure on
  int64_t epochs = 0;
  double writing = 0, answering = 0, reading = 0, training = 0, evaluating = 0;
  double least_hours = 0;  // that the least training takes
};

// A target with what is known of it, and the plan.
struct Starter {
  infer::LoadedModel loaded;
  model::TransformerConfig config;
  Task task = {};
  bool chat = false;       // prompts are messages in the chat template
  int64_t lines = 0;       // different lines of the text; 0: the target writes its prompts
  double row_seconds = 0;  // of a token, in a batch of kBatch rows
  std::vector<Candidate> candidates{};
  const Candidate* chosen = nullptr;
  Schedule schedule = {};
};

// ---- A look at the target and the text

using TextLines = std::map<std::string, fs::path>;  // different ones, as prompts have them, with their files

// Checks all that needs no model. Returns the lines of the text. Errors: UserError, also for few lines.
TextLines check_flags(const NewFlags& flags) {
  if (fs::exists(flags.out) || !flags.out.has_filename()) {
    throw UserError({flags.out.string(), "exists already or names a folder, and nothing is overwritten",
                     "the name of a new file in --out", "", "choose another name"});
  }
  parse_dtype(flags.dtype);
  TextLines lines;
  for (const fs::path& file : flags.text) {
    for (const std::string& line : data::read_lines(file)) {
      const auto words = metrics::split_words(line);
      if (!words.empty()) lines.try_emplace(fmt::format("{}", fmt::join(words, " ")), file);
    }
  }
  if (flags.text.empty() || std::ssize(lines) >= kFewestLines) return lines;
  throw UserError({flags.text.front().string(), "the text is too little to train on some lines and to measure others",
                   fmt::format("{} different lines in all files", kFewestLines), std::to_string(lines.size()), ""});
}

// Refuses a line that is too long, as an evaluation would.
void check_lengths(const Starter& starter, const TextLines& lines) {
  const int64_t positions = starter.config.max_positions;
  const int64_t kept = starter.config.encoder_decoder ? 1 : starter.task.max_new_tokens + (starter.chat ? 32 : 1);
  for (const auto& [line, file] : lines) {
    const int64_t tokens = std::ssize(starter.loaded.tokenizer->encode(line));
    if (tokens + kept <= positions) continue;
    throw UserError({file.string(), "a prompt leaves the target no room for its answer",
                     fmt::format("at most {} tokens a line", positions - kept),
                     fmt::format("{} tokens: {}", tokens, cut_to_width(line, 60)), "shorten it, or leave it out"});
  }
}

// Chooses what prompts are. Errors: UserError for a task without template or text that it needs.
void choose_task(Starter& starter, const NewFlags& flags) {
  const bool encodes = starter.config.encoder_decoder;
  const bool has_template = !encodes && data::find_chat_template(flags.target).has_value();
  const std::string name = !flags.task.empty() ? flags.task : encodes ? "translation" : has_template ? "chat" : "text";
  starter.task = *std::ranges::find(kTasks, name, &Task::name);
  starter.chat = has_template && name != "text";
  const int64_t most = starter.config.max_positions;
  if (most > 0) starter.task.max_new_tokens = std::clamp<int64_t>(most / 2, 1, starter.task.max_new_tokens);
  Problems problems;
  if (name == "chat" && !has_template) {
    problems.add({"--task", "chat needs a chat template, which the target does not have",
                  "chat_template.jinja in the model directory, or another task", "chat", ""});
  }
  if (flags.text.empty() && (encodes || !starter.task.own)) {
    problems.add({"--text", "only a decoder-only model writes its prompts itself, for chat and text",
                  fmt::format("files with {}", starter.task.text), "none, for " + name,
                  "a thousand lines are enough to begin with"});
  }
  problems.throw_if_any();
  if (!starter.chat) return;
  const nlohmann::ordered_json question{{"role", "user"}, {"content", "-"}};
  data::load_chat_template(flags.target).render(nlohmann::ordered_json::array({question}), true);
}

// Refuses a disk without room for corpora, three models, a checkpoint and the export of a drafter, or for candidates.
void require_disk(const Starter& starter, const NewFlags& flags, int64_t layers) {
  model::TransformerConfig drafter = starter.config;
  drafter.decoder_layers = (drafter.decoder_layers + 1) / 2;
  const int64_t measured = 2 * model::count_numbers(drafter);
  drafter.decoder_layers = layers;
  const int64_t ids = starter.schedule.prompts * starter.task.max_new_tokens;
  const bool states = starter.chosen != nullptr && starter.chosen->kind->reads_states;
  const int64_t kept = (states ? 8 + 6 * drafter.width : 8) * ids;  // prompts have as many ids as answers; shards, too
  const auto needed = 4 * static_cast<uint64_t>(std::max(measured, 7 * model::count_numbers(drafter) + kept));
  const uint64_t free = disk_free(fs::absolute(flags.out).parent_path());
  if (free >= needed) return;
  throw UserError({flags.out.string(), "the disk has no room for the recipe's models and corpora", human_bytes(needed),
                   human_bytes(free), "write and run the recipe on another disk, or take another --kind"});
}

Starter look_at(const NewFlags& flags, const TextLines& lines, c10::Device device) {
  Starter starter{.loaded = infer::load_model_directory(
                      flags.target, {.device = device, .dtype = parse_dtype(flags.dtype)}, flags.languages),
                  .config = model::ModelDirectory(flags.target).config(),
                  .lines = std::ssize(lines)};
  const auto& tokenizer = infer::tokenizer_of(starter.loaded, "prompts are text: put the model's tokenizer there");
  for (const int64_t end : starter.config.eos) {
    if (end < tokenizer.vocabulary()) continue;
    throw UserError({flags.target.string(), "the tokenizer lacks the token that ends the model's outputs",
                     fmt::format("an id of {}", end), fmt::format("{} ids", tokenizer.vocabulary()),
                     "tokenizer and model do not belong together"});
  }
  if (starter.config.decoder_layers < 2) {
    throw UserError({flags.target.string(), "a drafter has fewer decoder layers than its target",
                     "a target of several decoder layers", "1", ""});
  }
  choose_task(starter, flags);
  if (starter.config.max_positions > 0) check_lengths(starter, lines);
  require_disk(starter, flags, 1);
  return starter;
}

// ---- Measuring

// Returns a context in the middle of a typical output.
infer::CalibrationContext usual_context(const Starter& starter, int64_t rows) {
  const int64_t most = starter.config.max_positions;
  const int64_t length = most == 0 ? 64 : std::clamp<int64_t>(most - kLongestWindow - 1, 1, 64);
  return infer::random_context(starter.loaded.model->info(), {.rows = rows, .source = 32, .length = length});
}

// Returns the seconds of a token in a batch, of the target as stages load it that write prompts and answers.
double row_seconds(const Starter& starter, const NewFlags& flags, model::LoadOptions load) {
  infer::LoadedModel other;
  load.dtype = at::kFloat;
  if (flags.written_dtype() != flags.dtype) other = infer::load_model_directory(flags.target, load);
  model::LanguageModel& target = other.model ? *other.model : *starter.loaded.model;
  return infer::measure_step_costs(target, target, usual_context(starter, kBatch), 1).target.front() / kBatch;
}

void measure_all(Starter& starter, const NewFlags& flags, c10::Device device) {
  const model::LoadOptions load{.device = device, .dtype = parse_dtype(flags.dtype)};
  starter.row_seconds = row_seconds(starter, flags, load);
  starter.candidates = measure_candidates({.target = starter.loaded,
                                           .load = load,
                                           .context = usual_context(starter, 1),
                                           .folder = fs::absolute(flags.out).parent_path(),
                                           .longest = kLongestWindow,
                                           .length = starter.task.max_new_tokens,
                                           .example_tokens = starter.task.max_new_tokens,
                                           .distils = starter.task.own,
                                           .alpha = flags.alpha.value_or(starter.task.alpha),
                                           .alpha_doubled = flags.alpha ? 0 : kAlphaDoubled});
}

// ---- The plan

// Plans prompts and times of stages for a candidate.
Schedule schedule_for(const Starter& starter, const Candidate& candidate, double seconds) {
  // Over held-out prompts: five settings count, eight with those that sample, and time each line more than once.
  const double passes = starter.task.own ? 19 : 12;
  constexpr double kOwnTokens = 96;  // of a prompt that the target writes, with those that are thrown away
  Schedule made;
  const bool writes = starter.lines == 0;
  const auto tokens = static_cast<double>(starter.task.max_new_tokens);
  const double line = passes * tokens * candidate.costs.target.front();
  made.held_out = std::clamp<int64_t>(static_cast<int64_t>(kEvaluated * seconds / line), 20, 200);
  if (!writes) made.held_out = std::min(made.held_out, starter.lines / 5);
  made.evaluating = line * static_cast<double>(made.held_out);
  const double writing = writes ? kOwnTokens * starter.row_seconds : 0;
  const double answering = tokens * starter.row_seconds;
  const double prepared = writing + answering + candidate.states_seconds;
  const double each = prepared + kEpochs * candidate.example_seconds;
  const int64_t most = writes ? kMostPrompts : starter.lines - made.held_out;
  const double room = std::max(0.0, kPlanned * seconds - made.evaluating) / each;
  const double count = std::floor(std::min(room, static_cast<double>(most)));
  made.prompts = static_cast<int64_t>(count);
  made.writing = writing * count;
  made.answering = answering * count;
  made.reading = candidate.states_seconds * count;
  const double left = kPlanned * seconds - made.evaluating - prepared * count;
  const double epochs = left / (std::max(count, 1.0) * candidate.example_seconds);
  made.epochs = static_cast<int64_t>(std::clamp(epochs, kEpochs, 4 * kEpochs));
  made.training = static_cast<double>(made.epochs) * candidate.example_seconds * count;
  const double least = each * static_cast<double>(std::min(kFewestPrompts, most)) + 20 * line;
  made.least_hours = 1.02 * least / (kPlanned - kEvaluated) / 3600;
  return made;
}

// Returns the format of the drafter's export: the target's own if that holds it; empty: none does.
std::string format_of(const Candidate& one, const NewFlags& flags) {
  for (const std::string& format : {flags.format, std::string("hf"), std::string("vllm")}) {
    if (one.refusals.at(format).empty()) return format;
  }
  return "";
}

bool may_be_chosen(const Candidate& one, const NewFlags& flags) {
  if (one.kind == nullptr || flags.kind == "any") return one.kind != nullptr;
  return flags.kind.empty() ? !format_of(one, flags).empty() : flags.kind == one.kind->name;
}

// Chooses the candidate with the best expected speedup whose training fits the hours; where they are too few, the one
// that takes least. Errors: UserError for kinds that the target does not have, and for a disk without room.
void choose(Starter& starter, const NewFlags& flags, double hours) {
  const bool for_gguf = flags.format == "gguf" && flags.kind.empty();
  double fewest = std::numeric_limits<double>::infinity();
  for (Candidate& one : starter.candidates) {
    if (one.kind == nullptr) continue;
    const Schedule schedule = schedule_for(starter, one, 3600 * hours);
    one.minutes = schedule.training / 60;
    if (!may_be_chosen(one, flags)) continue;
    fewest = std::min(fewest, schedule.least_hours);
    const bool better = starter.chosen == nullptr || one.rank(for_gguf) > starter.chosen->rank(for_gguf);
    if (schedule.least_hours > hours || !better) continue;
    starter.chosen = &one;
    starter.schedule = schedule;
  }
  if (std::isinf(fewest)) {
    throw UserError({"--kind", "a drafter of this kind gains nothing for the target, or cannot read it", "another kind",
                     flags.kind, "vocabulary is for large heads, shared-encoder for encoder-decoders"});
  }
  if (starter.chosen == nullptr) {
    log_warning("--hours: {:g} are too few to train and measure a drafter: the recipe takes {:.3g}", hours, fewest);
    return choose(starter, flags, fewest);
  }
  require_disk(starter, flags, starter.chosen->layers);
}

// ---- The recipe and the answer

constexpr const char* kDropped = "\x01";  // marks lines of the template that do not apply

std::string quoted_path(const fs::path& path) {
  return toml_quoted(fs::canonical(path).string());
}

std::string minutes_text(double seconds) {
  return fmt::format("{:.1f} minutes", seconds / 60);
}

using Values = std::vector<std::pair<const char*, std::string>>;

// Returns what stands in the template for marks before lines: nothing, or that they are dropped.
Values conditions(const Starter& starter, const NewFlags& flags, bool t5) {
  const auto where = [](bool applies) { return std::string(applies ? "" : kDropped); };
  return {{"<text>", where(!flags.text.empty())},
          {"<own>", where(flags.text.empty())},
          {"<chat>", where(starter.chat)},
          {"<decoder-only>", where(!starter.config.encoder_decoder)},
          {"<half>", where(flags.written_dtype() != "fp32")},
          {"<fewer-ids>", where(starter.chosen->vocabulary > 0)},
          {"<pruned>", where(!starter.chosen->kind->reads_states)},
          {"<cached>", where(starter.chosen->kind->reads_states)},
          {"<started>", where(*starter.chosen->kind->start != 0)},
          {"<distilled>", where(starter.chosen->distilled)},
          {"<aligned>", where(!starter.chosen->distilled)},
          {"<sampled>", where(starter.task.own)},
          {"<encoder>", where(starter.config.encoder_layers > 1)},
          {"<t5>", where(t5)},
          {"<untied>", where(!starter.config.tied_head)},
          {"<from>", where(!flags.languages.source_language.empty())},
          {"<into>", where(!flags.languages.target_language.empty())}};
}

Values values_of(const Starter& starter, const NewFlags& flags, const TrainingDefaults& defaults) {
  const Candidate& drafter = *starter.chosen;
  const Schedule& schedule = starter.schedule;
  std::vector<std::string> files;
  for (const fs::path& file : flags.text) files.push_back(quoted_path(file));
  return {
      {"<file>", shell_word(flags.out.string())},
      {"<start>", drafter.kind->start},
      {"<cut>", drafter.vocabulary > 0 ? R"(vocabulary_from = "@answers/corpus.h5", vocabulary_size = <ids>, )" : ""},
      {"<name>", toml_quoted(flags.out.stem().string())},
      {"<target>", quoted_path(flags.target)},
      {"<source-language>", toml_quoted(flags.languages.source_language)},
      {"<target-language>", toml_quoted(flags.languages.target_language)},
      {"<files>", fmt::format("[{}]", fmt::join(files, ", "))},
      {"<drafter>", drafter.name()},
      {"<table>", replace_all(candidates_text(starter.candidates, &drafter), "\n", "\n# ")},
      {"<key>", drafter.kind->drafter_key},
      {"<ids>", std::to_string(drafter.vocabulary)},
      {"<lambda>", fmt::format("{:g}", drafter.kind->lambda)},
      {"<kept>", fmt::format("every:{}", drafter.every)},
      {"<count>", std::to_string(schedule.prompts)},
      {"<held-out>", std::to_string(schedule.held_out)},
      {"<tokens>", std::to_string(starter.task.max_new_tokens)},
      {"<dtype>", flags.dtype},
      {"<epochs>", std::to_string(schedule.epochs)},
      {"<budget>", std::to_string(defaults.token_budget)},
      {"<lr>", fmt::format("{:g}", drafter.kind->rate * defaults.lr)},
      {"<source>", defaults.source},
      {"<query-factor>", fmt::format("{:.3f}", 1 / std::sqrt(static_cast<double>(starter.config.head_width)))},
      {"<timing>", fmt::format("{:.3g}", std::clamp(schedule.evaluating / 120, 0.05, 10.0))},
      {"<window>", std::to_string(std::max<int64_t>(1, drafter.window()))},
      {"<format>", flags.format},
      {"<prompts-time>", minutes_text(schedule.writing)},
      {"<answers-time>", minutes_text(schedule.answering)},
      {"<states-time>", minutes_text(schedule.reading)},
      {"<training-time>", minutes_text(schedule.training)},
      {"<evaluation-time>", minutes_text(schedule.evaluating)}};
}

std::string recipe_text(const Starter& starter, const NewFlags& flags) {
  const model::TransformerConfig& config = starter.config;
  const TrainingDefaults& defaults = *std::ranges::find_if(kDefaults, [&](const TrainingDefaults& row) {
    return row.t5 == (config.attention_scale == 1) && config.width <= row.widest;
  });
  std::string filled(cli_texts().front().text);
  for (const Values& values : {conditions(starter, flags, defaults.t5), values_of(starter, flags, defaults)}) {
    for (const auto& [mark, value] : values) filled = replace_all(filled, mark, value);
  }
  std::string text;
  std::istringstream lines(filled);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(kDropped) == std::string::npos) text += line + "\n";
  }
  return text;
}

int run_new(NewFlags flags) {
  const c10::Device device = begin_execution(flags.execution);
  const SignalWatch signals;
  const LongWork work("no recipe was written");
  const TextLines lines = check_flags(flags);
  if (flags.target.extension() == ".gguf") {
    flags.target = recipes::imported_gguf(flags.target, flags.out.parent_path());
    flags.format = "gguf";
  }
  Starter starter = look_at(flags, lines, device);
  const model::TransformerConfig& config = starter.config;
  std::cout << fmt::format("{}: {}, {} decoder layers of width {}, {} ids\nPrompts: {} ({})\n", flags.target.string(),
                           config.family, config.decoder_layers, config.width, config.vocabulary,
                           starter.lines > 0 ? fmt::format("{} different lines", starter.lines) : "the target's own",
                           starter.chat ? "messages in its chat template" : starter.task.name)
            << std::flush;
  log_info("measuring steps and training, some minutes ...");
  make_directories(fs::absolute(flags.out).parent_path());
  measure_all(starter, flags, device);
  choose(starter, flags, flags.hours);
  if (const std::string format = format_of(*starter.chosen, flags); !format.empty()) flags.format = format;
  write_file_atomic(flags.out, recipe_text(starter, flags));
  const Schedule& schedule = starter.schedule;
  std::cout << fmt::format(
      "{}: the target's step takes {:.2f} ms in {}, a token in a batch {:.2f} ms\n{}"
      "M: million trained numbers; min: minutes of training; step: over the target's; alpha: share of\n"
      "accepted drafts, with the speedup that theory expects. Which one is assumed was measured elsewhere.\n"
      "{}: {} prompts to train on, {} held out; minutes: prompts {:.1f}, answers {:.1f}, training {:.1f},\n"
      "evaluation {:.1f}. Next:\n  draftsmith train {}\n",
      device_description(device), 1e3 * starter.chosen->costs.target.front(), flags.dtype, 1e3 * starter.row_seconds,
      candidates_text(starter.candidates, starter.chosen), flags.out.string(), schedule.prompts, schedule.held_out,
      schedule.writing / 60, (schedule.answering + schedule.reading) / 60, schedule.training / 60,
      schedule.evaluating / 60, shell_word(flags.out.string()));
  return 0;
}

constexpr const char* kNewFooter =
    "Measures here the target's steps, those of drafters of each kind that are made of it, and their\n"
    "training. Writes a recipe of the best one that other engines run and that the hours suffice for.\n"
    "`draftsmith train` runs it to a verdict, and exports a drafter that pays. Without --text, a\n"
    "decoder-only target writes prompts. Alpha, the share of accepted drafts, is not known before\n"
    "training: it is assumed, and the table says from which alpha on each drafter pays.\n"
    "Examples:\n"
    "  draftsmith new --target SmolLM2-135M-Instruct --dtype bf16 --hours 2\n"
    "  draftsmith new --target model.gguf --text questions.txt --out drafter.toml\n"
    "  draftsmith new --target nllb-200-distilled-600M --target-language deu_Latn --text train.en";

}  // namespace

Action add_new(CLI::App& app) {
  auto flags = std::make_shared<NewFlags>();
  app.add_option("--target", flags->target, "Model directory, or GGUF file, that gets a drafter")
      ->required()
      ->type_name("DIR|GGUF");
  app.add_option("--text", flags->text, "Files with one prompt or source a line, as the target reads them")
      ->type_name("FILE");
  app.add_option("--task", flags->task, "What the target is for (default: what it looks like)")
      ->check(CLI::IsMember({"chat", "translation", "summarization", "text"}));
  app.add_option("--kind", flags->kind, "Kind of the drafter (default: the best that can be exported)")
      ->check(CLI::IsMember(candidate_kinds()));
  app.add_option("--alpha", flags->alpha, "Share of accepted drafts to assume (default: by task and layers)")
      ->check(within(0, 1), "");
  app.add_option("--hours", flags->hours, "Time that the recipe may take here")
      ->check(within(1e-4, 1e4), "")
      ->capture_default_str();
  app.add_option("--out", flags->out, "New recipe")->capture_default_str()->type_name("RECIPE.toml");
  app.add_option("--dtype", flags->dtype, "Type of weights in decoding: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  const auto languages = std::make_shared<OptionFlags<data::Languages>>(app);
  add_execution_flags(app, flags->execution);
  app.footer(kNewFooter);
  return [flags, languages] {
    flags->languages = languages->value();
    return run_new(*flags);
  };
}

}  // namespace draftsmith::cli
