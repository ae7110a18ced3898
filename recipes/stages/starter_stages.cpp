// Two stages of recipes that `draftsmith new` writes. kind = "prompts" collects prompts, of text files or written by
// the model itself after its template's user prefix (Magpie, Xu et al. 2024), and splits off those that are measured.
// kind = "verdict" reads an evaluation, exports a drafter that pays and says in one sentence what it is worth.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/random.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/results/results.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "metrics/text.h"
#include "recipes/export/export_model.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct PromptsOptions {
  fs::path model;
  std::vector<fs::path> text;
  bool chat = false;
  int64_t count = 0;
  int64_t held_out = 200;
  std::string dtype = "fp32";
  static Fields<PromptsOptions> fields();
};

Fields<PromptsOptions> PromptsOptions::fields() {
  using T = PromptsOptions;
  return Fields<T>("prompts stage (kind = \"prompts\"): makes train.jsonl and held_out.txt, which share no prompt")
      .add("model", &T::model, Required{}, "Model directory that answers the prompts, and without `text` writes them.")
      .add("text", &T::text, "Text files with one prompt or source a line; none: the model writes prompts itself.")
      .add("chat", &T::chat, "Prompts are a user's messages in the model's chat template.")
      .add("count", &T::count, Range{0}, Unit{"prompts"}, "Most prompts in train.jsonl; 0: all of `text`.")
      .add("held_out", &T::held_out, Range{1}, Unit{"prompts"}, "Prompts in held_out.txt, for evaluations.")
      .add("dtype", &T::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type of a model that writes prompts.")
      .check([](const PromptsOptions& options, const std::string& where, Problems& problems) {
        if (!options.text.empty() || options.count > 0) return;
        problems.add(
            {where + ".count", "without `text`, nothing says how many prompts the model writes", "1 or more", "0", ""});
      });
}

// Different prompts in the order of their arrival, each a line.
struct PromptList {
  std::vector<std::string> prompts;
  std::set<std::string> seen;

  // Adds a text, with one blank between its words, unless it is empty or there.
  void add(const std::string& text) {
    const std::string line = fmt::format("{}", fmt::join(metrics::split_words(text), " "));
    if (!line.empty() && seen.insert(line).second) prompts.push_back(line);
  }
};

// Returns whether a text that a model wrote is no prompt: too short, or most of its words are repeated.
bool is_unusable(const std::string& text) {
  const auto words = metrics::split_words(text);
  const std::set<std::string_view> different(words.begin(), words.end());
  return text.size() < 12 || 2 * different.size() < words.size();
}

ordered_json chat_message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// Returns the ids after which a model writes what users ask: its template's text before a user's message, or what
// texts begin with.
std::vector<int64_t> before_prompt(const PromptsOptions& options, const data::Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.frame().before;
  if (options.chat) {
    constexpr const char* kMark = "@@the user's message@@";
    const std::string text =
        data::load_chat_template(options.model).render(ordered_json::array({chat_message("user", kMark)}), false);
    const size_t at = text.find(kMark);
    if (at == std::string::npos) {
      throw UserError({options.model.string(), "its chat template changes a user's message",
                       "the message as it is, so that the model can write one", "", "give prompts in `text`"});
    }
    ids = data::encode_chat(tokenizer, text.substr(0, at));
  }
  if (ids.empty()) ids = {tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eos()};
  return {ids.begin(), ids.end()};
}

// Lets the model write until there are `wanted` prompts, or four times as many attempts were made; goes on with those
// of a run that ended before.
void write_own(const PromptsOptions& options, const StageContext& run, size_t wanted, PromptList& list) {
  const infer::LoadedModel loaded = infer::load_model_directory(
      options.model, {.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)});
  const data::Tokenizer& tokenizer = infer::tokenizer_of(loaded, "prompts are text");
  DecodingOptions decode;
  decode.temperature = 1;
  decode.max_new_tokens = options.chat ? 64 : 16;  // without a template, a prompt is the beginning of a text
  infer::Generator generator(loaded.alone(), decode.decoding("sample"));
  const std::vector<std::vector<int64_t>> starts(256, before_prompt(options, tokenizer));
  const fs::path file = run.directory / "written.json";
  size_t tried = 0;
  if (fs::exists(file)) {
    const nlohmann::json written = load_json(file);
    tried = written.at("tried").get<size_t>();
    for (const auto& prompt : written.at("prompts")) list.add(prompt.get<std::string>());
  }
  Progress progress({.title = "prompts",
                     .unit = "prompts",
                     .total = static_cast<int64_t>(wanted),
                     .done_before = std::ssize(list.prompts)},
                    "run the recipe again to go on with the prompts");
  while (list.prompts.size() < wanted && tried < 4 * wanted + starts.size()) {
    const auto results = generator.generate(starts, tried);
    infer::throw_if_failed(results);
    const size_t before = list.prompts.size();
    for (const infer::GenerationResult& result : results) {
      const std::vector<int32_t> ids(result.ids.begin(), result.ids.end());
      // Where an output is cut, its last character may be.
      const std::string text = replace_all(tokenizer.decode(ids), kReplacementText, "");
      if (!is_unusable(text)) list.add(text);
    }
    tried += starts.size();
    write_file_atomic(file, nlohmann::json{{"tried", tried}, {"prompts", list.prompts}}.dump());
    progress.advance(static_cast<int64_t>(list.prompts.size() - before));
  }
}

void run_prompts(const PromptsOptions& options, const StageContext& run) {
  PromptList list;
  for (const fs::path& file : options.text) {
    for (const std::string& line : data::read_lines(file)) list.add(line);
  }
  const auto held_out = static_cast<size_t>(options.held_out);
  const size_t wanted = held_out + static_cast<size_t>(options.count);
  if (options.text.empty()) write_own(options, run, wanted, list);
  std::vector<std::string>& all = list.prompts;
  if (all.size() <= held_out) {
    throw UserError({options.text.empty() ? options.model.string() : options.text.front().string(),
                     "there are too few different prompts to train on some and to measure others",
                     fmt::format("more than held_out = {}", held_out), std::to_string(all.size()), ""});
  }
  RandomSequence random{CounterRandom(1, "prompts")};
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  const size_t end = options.count > 0 ? std::min(wanted, all.size()) : all.size();
  std::string measured;
  std::string trained;
  for (size_t i = 0; i < held_out; ++i) measured += all[i] + "\n";
  // An object of every form that corpora read. "-" stands where the model's answer will be.
  for (size_t i = held_out; i < end; ++i) {
    const ordered_json messages = {chat_message("user", all[i]), chat_message("assistant", "-")};
    trained += ordered_json{{"source", all[i]}, {"target", "-"}, {"messages", messages}}.dump() + "\n";
  }
  write_file_atomic(run.directory / "held_out.txt", measured);
  write_file_atomic(run.directory / "train.jsonl", trained);
  fs::remove(run.directory / "written.json");
  log_info("  {} prompts to train on, {} to measure", end - held_out, held_out);
}

struct VerdictOptions {
  fs::path evaluation;
  fs::path drafter;
  std::string format = "hf";
  static Fields<VerdictOptions> fields();
};

Fields<VerdictOptions> VerdictOptions::fields() {
  using T = VerdictOptions;
  return Fields<T>(
             "verdict stage (kind = \"verdict\"): makes verdict.txt, and export/ or drafter.gguf if the drafter pays")
      .add("evaluation", &T::evaluation, Required{}, "results.json of an evaluation of the drafter.")
      .add("drafter", &T::drafter, Required{}, "Model directory of the drafter, called \"drafter\" in the evaluation.")
      .add("format", &T::format, Choices{"hf", "gguf", "vllm"},
           "What the drafter is exported for, as in `draftsmith export`.");
}

// Returns the timed settings, greedy or sampled, with look-up before the drafter or without, with a drafter of that
// name whose outputs are the target's: those that are measurably faster, then the others, the fastest first.
std::vector<evaluate::SettingResult> fastest(const evaluate::TaskResult& task, const std::string& drafter,
                                             bool sampled = false, bool behind_lookup = false) {
  std::vector<evaluate::SettingResult> found;
  for (const evaluate::SettingResult& setting : task.settings) {
    const bool sound = setting.lossless_check.value_or(false) && std::isfinite(setting.speed.speedup.value);
    if ((setting.params.value("temperature", 0.0) > 0) != sampled) continue;
    if ((setting.params.value("lookup", 0) > 0) != behind_lookup) continue;
    if (sound && setting.drafter_name() == drafter) found.push_back(setting);
  }
  std::ranges::sort(found, std::greater(), [](const evaluate::SettingResult& setting) {
    const auto& [value, interval] = setting.speed.speedup;
    return std::pair(interval.low > 1, value);
  });
  return found;
}

std::string times_text(const evaluate::SettingResult& setting) {
  const auto& [value, interval] = setting.speed.speedup;
  const double half = (interval.high - interval.low) / 2;
  return std::isnan(half) ? fmt::format("{:.2f} times (timed once)", value)
                          : fmt::format("{:.2f} ± {:.2f} times", value, half);
}

// Returns why drafts gain nothing: how many are accepted, and what they cost.
std::string reason_of(const evaluate::TaskResult& task, const evaluate::SettingResult& setting) {
  std::string text = fmt::format("the best is {} as fast: it accepts {:.0f} % of drafted tokens", times_text(setting),
                                 100 * setting.acceptance.acceptance_rate);
  for (const auto& [name, drafter] : task.drafters) {
    if (name != "drafter" || !drafter.cost_ratio) continue;
    text += fmt::format(", and a draft costs {:.2f} of a step", *drafter.cost_ratio);
  }
  return text;
}

// Exports the drafter. Returns what was made and how vLLM serves it, or why nothing was: of some kinds no other engine
// has a place.
std::string exported(const VerdictOptions& options, const fs::path& target, const fs::path& directory) {
  const fs::path out = directory / (options.format == "gguf" ? "drafter.gguf" : "export");
  fs::remove_all(out);  // of a killed run
  try {
    const ExportSummary made = export_model({.model = options.drafter, .out = out, .format = options.format});
    const std::string text = "export: " + out.string();
    if (options.format != "vllm") return text;
    return text + "\nto serve it: " + vllm_command(target, fs::absolute(out), made.eagle3);
  } catch (const UserError& error) {
    return "no export: " + error.problems().front().what;
  }
}

void run_verdict(const VerdictOptions& options, const StageContext& run) {
  const evaluate::Results results = evaluate::load_results(options.evaluation);
  if (results.tasks.empty()) {
    throw UserError({options.evaluation.string(), "there are no results of a task", "one task", "", ""});
  }
  const evaluate::TaskResult& task = results.tasks.front();
  const auto own = fastest(task, "drafter");
  const auto lookup = fastest(task, "lookup");
  if (own.empty()) {
    const auto there = std::ranges::count(task.settings, "drafter", &evaluate::SettingResult::drafter_name);
    throw UserError({options.evaluation.string(),
                     there == 0 ? "there is no setting with a drafter called \"drafter\""
                                : "no setting of the drafter was timed and writes what the target writes alone",
                     "a lossless run of method assisted or speculative", fmt::format("{} settings with it", there),
                     there == 0 ? "" : "the evaluation's report says which lines differ or failed"});
  }
  const double low = own[0].speed.speedup.interval.low;
  std::string text = fmt::format("a drafter does not pay here, because {} ({} held-out prompts)\n",
                                 reason_of(task, own[0]), task.lines);
  if (std::isnan(low)) {
    text = fmt::format("not known whether a drafter pays here: of {} held-out prompts too few were timed; {}\n",
                       task.lines, reason_of(task, own[0]));
  }
  if (low > 1) {
    text = fmt::format("lossless {} on {} held-out prompts ({}, best of {}); {}\n", times_text(own[0]), task.lines,
                       own[0].name, own.size(), exported(options, results.environment_text("model"), run.directory));
  }
  if (const auto drawn = fastest(task, "drafter", true); !drawn.empty()) {
    text += fmt::format("sampling at temperature {:g}: lossless {}, {:.0f} % of drafted tokens accepted\n",
                        drawn[0].params.value("temperature", 0.0), times_text(drawn[0]),
                        100 * drawn[0].acceptance.acceptance_rate);
  }
  if (const auto behind = fastest(task, "drafter", false, true);
      !behind.empty() && behind[0].speed.speedup.interval.low > 1) {
    text += fmt::format("behind prompt look-up (--lookup {}), in this program alone: lossless {} ({})\n",
                        behind[0].params.value("lookup", 0), times_text(behind[0]), behind[0].name);
  }
  if (!lookup.empty() && lookup[0].speed.speedup.interval.low > 1) {
    text += fmt::format("prompt look-up, which needs no drafter: lossless {}\n", times_text(lookup[0]));
  }
  write_file_atomic(run.directory / "verdict.txt", text);
}

}  // namespace

std::vector<StageKind> starter_stages() {
  return {make_stage_kind<PromptsOptions>("prompts", 2, run_prompts),
          make_stage_kind<VerdictOptions>("verdict", 2, run_verdict)};
}

}  // namespace draftsmith::recipes
