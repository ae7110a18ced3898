// `draftsmith new`: a recipe that gives a model a drafter. Looks at the model and the text, measures here steps and
// training of candidates cut out of it, chooses one by theory, and fills in new_recipe.template. Stages that no other
// recipe has are in recipes/stages/starter_stages.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/table.h"
#include "base/timing.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "cli/application.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/load_models.h"
#include "metrics/text.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/pruning/pruning.h"
#include "recipes/import/import_gguf.h"
#include "train/objectives/objective.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::cli {

namespace {

namespace fs = std::filesystem;

struct NewFlags {
  fs::path target;
  std::vector<fs::path> text;
  std::string task;  // empty: what the target is for
  double hours = 1;
  fs::path out = "recipe.toml";
  std::string dtype = "fp32";
  std::string format = "hf";  // of the export
  ExecutionOptions execution;

  // Returns the type in which stages write prompts and answers; int8 and fp64 are those of evaluations alone.
  std::string written_dtype() const { return dtype == "bf16" || dtype == "fp16" ? dtype : "fp32"; }
};

struct Task {
  const char* name;
  int64_t max_new_tokens;  // of outputs, as recipes of such tasks have it
  bool own;                // decoder-only models can write its prompts
  const char* text;        // what --text must hold
};
constexpr std::array<Task, 4> kTasks = {{
    {"chat", 128, true, "what users ask, one message a line"},
    {"translation", 64, false, "sources to translate, one a line, as the model reads them"},
    {"summarization", 96, false, "texts to summarize, one a line, with the words that ask for it"},
    {"text", 128, true, "beginnings of text, one a line"},
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
constexpr int64_t kBatch = 64;           // of teacher outputs, by default
constexpr int64_t kEpochs = 4;           // as the tutorial's alignment
constexpr int64_t kLongestWindow = 8;
constexpr double kPlanned = 0.9;    // share of the hours: times are estimates
constexpr double kEvaluated = 0.3;  // share of the hours for evaluation, at most

// A drafter cut out of the target: every so many of its decoder layers, and half of its encoder layers.
struct Candidate {
  int64_t every = 1;
  int64_t layers = 0;
  int64_t length = 0;           // of outputs
  infer::StepCosts costs = {};  // beside the target
  double example_seconds = 0;   // of training on an example once

  // Returns the share of accepted drafts that is assumed: more layers agree more often.
  double alpha() const { return std::min(0.8, 0.5 + 0.1 * std::log2(static_cast<double>(layers))); }
  evaluate::BestWindow best(double at) const { return evaluate::best_window(at, costs, kLongestWindow, length); }
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
  size_t chosen = 0;
  int64_t prompts = 0;   // to train on
  int64_t held_out = 0;  // to measure on
  // Times of stages.
  double writing = 0, answering = 0, training = 0, evaluating = 0;
};

// ---- A look at the target and the text

using TextLines = std::map<std::string, fs::path>;  // different ones, as prompts have them, with their files

// Checks all that needs no model. Returns the lines of the text. Errors: UserError, also for few lines.
TextLines check_flags(const NewFlags& flags) {
  if (fs::exists(flags.out)) {
    throw UserError({flags.out.string(), "exists already, and is not overwritten", "the name of a new file in --out",
                     "", "remove it, or choose another name"});
  }
  parse_weight_type(flags.dtype);
  if (!flags.task.empty() && std::ranges::find(kTasks, flags.task, &Task::name) == kTasks.end()) {
    throw UserError(unknown_name("task", flags.task, {"chat", "translation", "summarization", "text"}, "--task"));
  }
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
}

Starter look_at(const NewFlags& flags, const TextLines& lines, c10::Device device) {
  Starter starter{
      .loaded = infer::load_model_directory(flags.target, {.device = device, .dtype = parse_weight_type(flags.dtype)}),
      .config = model::ModelDirectory(flags.target).config(),
      .lines = std::ssize(lines)};
  infer::tokenizer_of(starter.loaded, "prompts are text: put the model's tokenizer into its directory");
  if (starter.config.decoder_layers < 2) {
    throw UserError({flags.target.string(), "a drafter has fewer decoder layers than its target",
                     "a target of several decoder layers", "1", ""});
  }
  choose_task(starter, flags);
  if (starter.config.max_positions > 0) check_lengths(starter, lines);
  return starter;
}

// ---- Measuring

// Returns a context in the middle of a typical output.
infer::CalibrationContext usual_context(const Starter& starter, int64_t rows) {
  const int64_t most = starter.config.max_positions;
  const int64_t length = most == 0 ? 64 : std::clamp<int64_t>(most - kLongestWindow - 1, 1, 64);
  return infer::random_context(starter.loaded.model->info(), {.rows = rows, .source = 32, .length = length});
}

// Returns the seconds of passes forward and back on one example of random ids, in fp32.
double example_seconds(model::TransformerModel& drafter, const Starter& starter) {
  constexpr int64_t kRows = 8;
  std::vector<std::vector<int32_t>> tokens;
  for (const auto& row : infer::random_sources(kRows, starter.task.max_new_tokens, starter.config.vocabulary)) {
    tokens.emplace_back(row.begin(), row.end());
  }
  std::vector<train::ExampleTokens> examples;
  for (const auto& row : tokens) examples.push_back({std::span(row).first((row.size() + 1) / 2), row});
  train::PlainTrainable trainable(drafter);
  train::require_gradients(trainable, true);
  const auto objective = train::make_objective({});
  double seconds = 0;
  for (int step = 0; step < 3; ++step) {  // the last one counts
    const Stopwatch watch;
    objective->loss(trainable, train::make_batch(examples, trainable.info()), {}).sum.backward();
    synchronize(trainable.info().device);
    seconds = watch.seconds();
  }
  return seconds / kRows;
}

// Cuts the candidate out of the whole model and measures it.
void measure_candidate(Candidate& candidate, const model::TransformerModel& whole, const Starter& starter,
                       const model::LoadOptions& load) {
  const std::string half = starter.config.encoder_decoder ? "every:2" : "";
  const auto drafter =
      model::prune(whole, {.encoder_layers = half, .decoder_layers = fmt::format("every:{}", candidate.every)});
  const TemporaryDirectory folder;
  model::save_model(folder / "model", *drafter);
  const auto packed = model::load_model(folder / "model", load);
  candidate.costs =
      infer::measure_step_costs(*starter.loaded.model, *packed, usual_context(starter, 1), kLongestWindow + 1);
  drafter->to(load.device, at::kFloat);
  candidate.example_seconds = example_seconds(*drafter, starter);
}

// Returns the seconds of a token in a batch, of the target as stages load it that write prompts and answers.
double row_seconds(const Starter& starter, const NewFlags& flags, model::LoadOptions load) {
  infer::LoadedModel other;
  load.dtype = at::kFloat;
  if (flags.written_dtype() != flags.dtype) other = infer::load_model_directory(flags.target, load);
  model::LanguageModel& target = other.model ? *other.model : *starter.loaded.model;
  return infer::measure_step_costs(target, target, usual_context(starter, kBatch), 1).target.front() / kBatch;
}

// Measures drafters of about 1, 2, 4 and a quarter of the decoder layers.
void measure_all(Starter& starter, const NewFlags& flags, c10::Device device) {
  const int64_t all = starter.config.decoder_layers;
  const model::LoadOptions load{.device = device, .dtype = parse_weight_type(flags.dtype)};
  starter.row_seconds = row_seconds(starter, flags, load);
  const auto whole = model::load_model(flags.target, {.pack = false});
  for (const int64_t every : std::set{all, (all + 1) / 2, (all + 3) / 4, int64_t{4}}) {
    if (every < 2 || every > all) continue;
    work_point();
    starter.candidates.push_back({every, (all + every - 1) / every, starter.task.max_new_tokens});
    measure_candidate(starter.candidates.back(), *whole, starter, load);
  }
}

// ---- The plan

// Plans prompts and times for a candidate. Returns the hours that its least training takes.
double plan_for(Starter& starter, const Candidate& candidate, double seconds) {
  constexpr double kPasses = 12;     // over held-out prompts: five settings count, and time each line more than once
  constexpr double kOwnTokens = 96;  // of a prompt that the target writes, with those that are thrown away
  const bool writes = starter.lines == 0;
  const auto tokens = static_cast<double>(starter.task.max_new_tokens);
  const double line = kPasses * tokens * candidate.costs.target.front();
  starter.held_out = std::clamp<int64_t>(static_cast<int64_t>(kEvaluated * seconds / line), 20, 200);
  if (!writes) starter.held_out = std::min(starter.held_out, starter.lines / 5);
  starter.evaluating = line * static_cast<double>(starter.held_out);
  const double writing = writes ? kOwnTokens * starter.row_seconds : 0;
  const double answering = tokens * starter.row_seconds;
  const double training = kEpochs * candidate.example_seconds;
  const double each = writing + answering + training;
  const int64_t most = writes ? kMostPrompts : starter.lines - starter.held_out;
  const double room = std::max(0.0, kPlanned * seconds - starter.evaluating) / each;
  const double count = std::floor(std::min(room, static_cast<double>(most)));
  starter.prompts = static_cast<int64_t>(count);
  starter.writing = writing * count;
  starter.answering = answering * count;
  starter.training = training * count;
  const double least = each * static_cast<double>(std::min(kFewestPrompts, most)) + 20 * line;
  return 1.02 * least / (kPlanned - kEvaluated) / 3600;
}

// Chooses the candidate with the best expected speedup whose training fits the hours. Errors: UserError with the hours
// that are needed, and for a disk without room for corpora, three models, a checkpoint and the export.
void choose(Starter& starter, const NewFlags& flags) {
  double fewest = std::numeric_limits<double>::infinity();
  const Candidate* best = nullptr;
  for (const Candidate& one : starter.candidates) {
    const double needed = plan_for(starter, one, 3600 * flags.hours);
    fewest = std::min(fewest, needed);
    const bool better = best == nullptr || one.best(one.alpha()).speedup > best->best(best->alpha()).speedup;
    if (needed <= flags.hours && better) best = &one;
  }
  if (best == nullptr) {
    throw UserError({"--hours", "the hours are too few to train any drafter and to measure it",
                     fmt::format("{:.3g} or more on this machine", fewest), fmt::format("{:g}", flags.hours), ""});
  }
  starter.chosen = static_cast<size_t>(best - starter.candidates.data());
  plan_for(starter, *best, 3600 * flags.hours);
  model::TransformerConfig drafter = starter.config;
  drafter.decoder_layers = best->layers;
  const int64_t numbers = 7 * model::count_numbers(drafter) + 8 * starter.prompts * starter.task.max_new_tokens;
  const uint64_t needed = 4 * static_cast<uint64_t>(numbers);
  const uint64_t free = disk_free(fs::absolute(flags.out).parent_path());
  if (free >= needed) return;
  throw UserError({flags.out.string(), "the disk has no room for the recipe's models and corpora", human_bytes(needed),
                   human_bytes(free), "write and run the recipe on another disk"});
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
  const bool encodes = starter.config.encoder_decoder;
  return {{"<text>", where(!flags.text.empty())},
          {"<own>", where(flags.text.empty())},
          {"<chat>", where(starter.chat)},
          {"<plain>", where(!starter.chat && !encodes)},
          {"<half>", where(flags.written_dtype() != "fp32")},
          {"<encoder>", where(encodes)},
          {"<t5>", where(t5)},
          {"<untied>", where(!starter.config.tied_head)}};
}

Values values_of(const Starter& starter, const NewFlags& flags, const TrainingDefaults& defaults) {
  const Candidate& drafter = starter.candidates[starter.chosen];
  std::vector<std::string> files;
  for (const fs::path& file : flags.text) files.push_back(quoted_path(file));
  std::vector<std::string> speedups;
  for (const double alpha : {0.5, 0.6, 0.7, 0.8}) {
    speedups.push_back(fmt::format("{:.2f} at {:g}", drafter.best(alpha).speedup, alpha));
  }
  return {{"<file>", flags.out.string()},
          {"<name>", toml_quoted(flags.out.stem().string())},
          {"<target>", quoted_path(flags.target)},
          {"<files>", fmt::format("[{}]", fmt::join(files, ", "))},
          {"<layers>", fmt::format("{} of {}", drafter.layers, starter.config.decoder_layers)},
          {"<kept>", fmt::format("every:{}", drafter.every)},
          {"<ratio>", fmt::format("{:.2f}", drafter.costs.cost_ratio())},
          {"<speedups>", fmt::format("{}", fmt::join(speedups, ", "))},
          {"<count>", std::to_string(starter.prompts)},
          {"<held-out>", std::to_string(starter.held_out)},
          {"<tokens>", std::to_string(starter.task.max_new_tokens)},
          {"<dtype>", flags.dtype},
          {"<epochs>", std::to_string(kEpochs)},
          {"<budget>", std::to_string(defaults.token_budget)},
          {"<lr>", fmt::format("{:g}", defaults.lr)},
          {"<source>", defaults.source},
          {"<query-factor>", fmt::format("{:.3f}", 1 / std::sqrt(static_cast<double>(starter.config.head_width)))},
          {"<timing>", fmt::format("{:.3g}", std::clamp(starter.evaluating / 120, 0.05, 10.0))},
          {"<window>", std::to_string(std::max<int64_t>(1, drafter.best(drafter.alpha()).window))},
          {"<format>", flags.format},
          {"<prompts-time>", minutes_text(starter.writing)},
          {"<answers-time>", minutes_text(starter.answering)},
          {"<training-time>", minutes_text(starter.training)},
          {"<evaluation-time>", minutes_text(starter.evaluating)}};
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

// Returns a row for each candidate: what it is, what it costs, and what theory expects of it.
std::string candidates_table(const Starter& starter) {
  Table table({{"layers"}, {"step"}, {"examples/s"}, {"alpha .5"}, {".6"}, {".7"}, {".8"}, {"assumed"}, {""}});
  for (const Candidate& one : starter.candidates) {
    std::vector<std::string> row = {fmt::format("{} of {}", one.layers, starter.config.decoder_layers),
                                    fmt::format("{:.2f}", one.costs.cost_ratio()),
                                    fmt::format("{:.1f}", 1 / one.example_seconds)};
    for (const double alpha : {0.5, 0.6, 0.7, 0.8}) row.push_back(fmt::format("{:.2f}", one.best(alpha).speedup));
    row.push_back(fmt::format("{:.2f}", one.alpha()));
    row.emplace_back(&one == &starter.candidates[starter.chosen] ? "<" : "");
    table.add_row(row);
  }
  return table.text();
}

// Makes a model directory of a GGUF file, beside the recipe, unless an earlier run did; the drafter goes out as GGUF.
void use_gguf(NewFlags& flags) {
  const fs::path directory = flags.out.parent_path() / (flags.target.stem().string() + "-imported");
  const bool newer = fs::exists(directory) && fs::last_write_time(directory) >= fs::last_write_time(flags.target);
  if (!newer) recipes::import_gguf(flags.target, directory);  // refuses to overwrite an older one
  flags.target = directory;
  flags.format = "gguf";
}

int run_new(NewFlags flags) {
  const c10::Device device = begin_execution(flags.execution);
  const SignalWatch signals;
  const LongWork work("no recipe was written");
  const TextLines lines = check_flags(flags);
  if (flags.target.extension() == ".gguf") use_gguf(flags);
  Starter starter = look_at(flags, lines, device);
  const model::TransformerConfig& config = starter.config;
  std::cout << fmt::format("{}: {}, {} decoder layers of width {}, {} ids\nPrompts: {} ({})\n", flags.target.string(),
                           config.family, config.decoder_layers, config.width, config.vocabulary,
                           starter.lines > 0 ? fmt::format("{} different lines", starter.lines) : "the target's own",
                           starter.chat ? "messages in its chat template" : starter.task.name)
            << std::flush;
  log_info("measuring steps and training, about a minute ...");
  measure_all(starter, flags, device);
  choose(starter, flags);
  const bool gains =
      std::ranges::any_of(starter.candidates, [](const Candidate& one) { return one.best(one.alpha()).window > 0; });
  if (!gains) std::cout << "Theory expects no gain here: at the assumed alpha, no window of any drafter is faster.\n";
  write_file_atomic(flags.out, recipe_text(starter, flags));
  std::cout << fmt::format(
      "{}: the target's step takes {:.2f} ms in {}, a token in a batch {:.2f} ms\n{}"
      "step: over the target's; examples/s: of training; speedups that theory expects if so many drafts\n"
      "are accepted (alpha), and the share that is assumed of so many layers.\n"
      "{}: {} prompts to train on, {} held out; minutes: prompts {:.1f}, answers {:.1f}, training {:.1f},\n"
      "evaluation {:.1f}. Next:\n  draftsmith train {}\n",
      device.is_cpu() ? cpu_name() : device_description(device),
      1e3 * starter.candidates[starter.chosen].costs.target.front(), flags.dtype, 1e3 * starter.row_seconds,
      candidates_table(starter), flags.out.string(), starter.prompts, starter.held_out, starter.writing / 60,
      starter.answering / 60, starter.training / 60, starter.evaluating / 60, flags.out.string());
  return 0;
}

constexpr const char* kNewFooter =
    "Measures here the target's steps, those of drafters cut out of it, and their training. Takes the one\n"
    "with the best expected speedup whose training fits the hours, and writes a recipe with comments.\n"
    "`draftsmith train` runs it: the target answers prompts, the drafter learns the answers, held-out\n"
    "prompts measure it. The last lines are the verdict, with the exported drafter if it pays.\n"
    "Without --text, a decoder-only target writes its prompts itself. What is not known before training\n"
    "is alpha, the share of accepted drafts: .5 is assumed of one layer, .1 more for each doubling.\n"
    "Examples:\n"
    "  draftsmith new --target SmolLM2-135M-Instruct --dtype bf16 --hours 2\n"
    "  draftsmith new --target model.gguf --text questions.txt --out drafter.toml\n"
    "  draftsmith new --target opus-mt-de-en --text train.de\n"
    "  draftsmith train recipe.toml";

}  // namespace

Action add_new(CLI::App& app) {
  auto flags = std::make_shared<NewFlags>();
  app.add_option("--target", flags->target, "Model directory, or GGUF file, that gets a drafter")
      ->required()
      ->type_name("DIR|GGUF");
  app.add_option("--text", flags->text, "Files with one prompt or source a line, as the target reads them")
      ->type_name("FILE");
  app.add_option("--task", flags->task, "chat, translation, summarization or text (default: what the target is for)")
      ->type_name("NAME");
  app.add_option("--hours", flags->hours, "Time that the recipe may take here")
      ->check(CLI::Range(1e-4, 1e4))
      ->capture_default_str();
  app.add_option("--out", flags->out, "New recipe")->capture_default_str()->type_name("RECIPE.toml");
  app.add_option("--dtype", flags->dtype, "Type of weights in decoding: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  add_execution_flags(app, flags->execution);
  app.footer(kNewFooter);
  return [flags] { return run_new(*flags); };
}

}  // namespace draftsmith::cli
