// Two stages of recipes that `draftsmith new` writes. kind = "prompts" collects prompts, of text files or written by
// the model itself after its template's user prefix (Magpie, Xu et al. 2024), and splits off those that are measured.
// kind = "verdict" reads an evaluation, exports a drafter that pays and says in one sentence what it is worth.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/options.h"
#include "base/random.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/results/results.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "recipes/export/export_model.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// ---- kind = "prompts"

struct PromptsOptions {
  fs::path model;
  std::vector<fs::path> text;
  bool chat = false;
  int64_t count = 0;
  int64_t held_out = 200;
  int64_t max_tokens = 0;
  int64_t own_tokens = 64;
  uint64_t seed = 1;
  static Fields<PromptsOptions> fields();
};

Fields<PromptsOptions> PromptsOptions::fields() {
  using T = PromptsOptions;
  return Fields<T>("prompts stage (kind = \"prompts\"): makes train.jsonl and held_out.txt, which share no prompt")
      .add("model", &T::model, Required{},
           "Model directory: its tokenizer, its chat template and, without text, itself.")
      .add("text", &T::text,
           "Text files with one prompt or source a line. None: a decoder-only model writes its prompts itself, at "
           "temperature 1.")
      .add("chat", &T::chat, "Prompts are a user's messages in the model's chat template.")
      .add("count", &T::count, Range{0}, Unit{"prompts"},
           "Prompts in train.jsonl at most; 0: all of the text. A model that writes them needs a number.")
      .add("held_out", &T::held_out, Range{1}, Unit{"prompts"}, "Prompts in held_out.txt, for evaluations.")
      .add("max_tokens", &T::max_tokens, Range{0}, Unit{"tokens"}, "Longer prompts are left out; 0: none is.")
      .add("own_tokens", &T::own_tokens, Range{1}, Unit{"tokens"}, "Most tokens of a prompt that the model writes.")
      .add("seed", &T::seed, "Seed of the split and of what the model writes.")
      .check([](const PromptsOptions& options, const std::string& where, Problems& problems) {
        if (!options.text.empty() || options.count > 0) return;
        problems.add({.where = where + ".count",
                      .what = "a model that writes its prompts itself must know how many",
                      .expected = "`count`, or files in `text`"});
      });
}

// Returns the words of a text with single blanks between them: prompts are lines.
std::string one_line(const std::string& text) {
  std::istringstream stream(text);
  std::string line;
  for (std::string word; stream >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

// Returns whether a text that a model wrote is no prompt: too short, broken, or going round in circles.
bool is_unusable(const std::string& text) {
  if (text.size() < 12 || text.find(kReplacementText) != std::string::npos) return true;
  std::istringstream stream(text);
  std::set<std::string> different;
  size_t words = 0;
  for (std::string word; stream >> word; ++words) different.insert(word);
  return words >= 8 && 2 * different.size() < words;
}

// Prompts without repetition, in the order of their arrival.
class PromptList {
 public:
  PromptList(const data::Tokenizer& tokenizer, int64_t max_tokens) : tokenizer_(tokenizer), max_tokens_(max_tokens) {}

  void add(const std::string& text) {
    const std::string line = one_line(text);
    if (line.empty()) return;
    if (max_tokens_ > 0 && std::ssize(tokenizer_.encode(line)) > max_tokens_) {
      ++too_long_;
    } else if (seen_.insert(line).second) {
      prompts_.push_back(line);
    } else {
      ++repeated_;
    }
  }

  int64_t size() const { return std::ssize(prompts_); }
  std::string counts() const {
    return fmt::format("{} different prompts; {} repetitions and {} too long ones were left out", size(), repeated_,
                       too_long_);
  }
  // Returns the prompts in a random order.
  std::vector<std::string> shuffled(uint64_t seed) const {
    std::vector<std::string> all = prompts_;
    RandomSequence random{CounterRandom(seed, "prompts")};
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
    return all;
  }

 private:
  const data::Tokenizer& tokenizer_;
  int64_t max_tokens_;
  std::set<std::string> seen_;
  std::vector<std::string> prompts_;
  int64_t repeated_ = 0;
  int64_t too_long_ = 0;
};

ordered_json message(const char* role, const std::string& content) {
  ordered_json one;
  one["role"] = role;
  one["content"] = content;
  return one;
}

// Returns the ids after which a model writes what users ask: its template's text before a user's message, or what
// texts begin with. Errors: UserError for a template that changes the message.
std::vector<int64_t> before_prompt(const PromptsOptions& options, const data::Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.frame().before;
  if (options.chat) {
    constexpr const char* kMark = "@@the user's message@@";
    data::ChatTemplate chat = data::load_chat_template(options.model);
    const std::string text = chat.render(ordered_json::array({message("user", kMark)}), false);
    const size_t at = text.find(kMark);
    if (at == std::string::npos) {
      throw UserError({.where = chat.file().string(),
                       .what = "the template changes a user's message, so nothing says where one begins",
                       .expected = "the message as it is",
                       .hint = "give prompts as text"});
    }
    ids = data::encode_chat(tokenizer, text.substr(0, at));
  }
  if (ids.empty()) ids = {tokenizer.bos() >= 0 ? tokenizer.bos() : tokenizer.eos()};
  return {ids.begin(), ids.end()};
}

// Lets the model write until there are `wanted` prompts, or four times as many attempts were made. A killed run begins
// anew: this takes a small part of the time that the answers take.
void write_own(const PromptsOptions& options, const Execution& execution, int64_t wanted, PromptList& prompts) {
  const infer::LoadedModel loaded =
      infer::load_model_directory(options.model, {.device = choose_device(execution.device)});
  if (loaded.model->info().encoder_decoder) {
    throw UserError({.where = "text",
                     .what = "an encoder-decoder cannot write its own sources",
                     .expected = "files with one source a line"});
  }
  const data::Tokenizer& tokenizer = infer::tokenizer_of(loaded, "prompts are text");
  infer::DecodeOptions decode{.method = "sample", .temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
  decode.seed = options.seed;
  decode.max_new_tokens = options.own_tokens;
  decode.batch_size = 64;
  infer::Generator generator(loaded.alone(), decode);
  const std::vector<std::vector<int64_t>> starts(256, before_prompt(options, tokenizer));
  Progress progress({.style = execution.progress(), .title = "prompts", .unit = "prompts", .total = wanted});
  const LongWork work("run the recipe again to write the prompts from the beginning", [&] { progress.tick(); });
  for (int64_t tried = 0; prompts.size() < wanted && tried < 4 * wanted + std::ssize(starts);
       tried += std::ssize(starts)) {
    const auto results = generator.generate(starts, static_cast<uint64_t>(tried));
    infer::throw_if_failed(results);
    const int64_t before = prompts.size();
    for (const infer::GenerationResult& result : results) {
      const std::string text = tokenizer.decode(std::vector<int32_t>(result.ids.begin(), result.ids.end()));
      if (prompts.size() < wanted && !is_unusable(text)) prompts.add(text);
    }
    progress.advance(prompts.size() - before);
  }
}

// Writes a prompt as an object of every form that corpora read. "-" stands where the model's answer will be.
void write_prompt(std::ofstream& file, const std::string& text) {
  const ordered_json object{{"source", text},
                            {"target", "-"},
                            {"messages", ordered_json::array({message("user", text), message("assistant", "-")})}};
  file << object.dump() << '\n';
}

void write_prompts(const fs::path& directory, const std::vector<std::string>& all, size_t held_out, size_t end) {
  std::string lines;
  for (size_t i = 0; i < held_out; ++i) lines += all[i] + "\n";
  write_file_atomic(directory / "held_out.txt", lines);
  AtomicPath place(directory / "train.jsonl");
  std::ofstream file(place.temporary(), std::ios::binary);
  for (size_t i = held_out; i < end; ++i) write_prompt(file, all[i]);
  file.close();
  if (!file) throw RunError({.where = place.final_path().string(), .what = "the prompts cannot be written"});
  place.commit();
}

void run_prompts(const PromptsOptions& options, const StageContext& run) {
  const auto tokenizer = data::load_tokenizer(options.model);
  PromptList prompts(*tokenizer, options.max_tokens);
  for (const fs::path& file : options.text) {
    for (const std::string& line : data::read_lines(file)) prompts.add(line);
  }
  if (options.text.empty()) write_own(options, run.execution, options.count + options.held_out, prompts);
  log_info("  {}", prompts.counts());
  if (prompts.size() <= options.held_out) {
    throw UserError({.where = options.text.empty() ? options.model.string() : options.text.front().string(),
                     .what = "there are too few different prompts to train on some and to measure others",
                     .expected = fmt::format("more than held_out = {}", options.held_out),
                     .found = fmt::format("{}", prompts.size()),
                     .hint = "give more text, or a smaller held_out"});
  }
  const int64_t wanted = options.count > 0 ? options.count + options.held_out : prompts.size();
  write_prompts(run.directory, prompts.shuffled(options.seed), static_cast<size_t>(options.held_out),
                static_cast<size_t>(std::min(wanted, prompts.size())));
}

// ---- kind = "verdict"

struct VerdictOptions {
  fs::path evaluation;
  fs::path drafter;
  fs::path target;
  std::string format = "hf";
  static Fields<VerdictOptions> fields();
};

Fields<VerdictOptions> VerdictOptions::fields() {
  using T = VerdictOptions;
  return Fields<T>(
             "verdict stage (kind = \"verdict\"): makes verdict.txt, and export/ or drafter.gguf if the drafter pays")
      .add("evaluation", &T::evaluation, Required{}, "results.json of an evaluation of the drafter.")
      .add("drafter", &T::drafter, Required{}, "Model directory of the drafter, called \"drafter\" in the evaluation.")
      .add("target", &T::target, Required{}, "Model directory of the target, for the export's card.")
      .add("format", &T::format, Choices{"hf", "gguf", "none"},
           "What the drafter is exported for, as in `draftsmith export`; none: it is left where it is.");
}

constexpr const char* kDrafter = "drafter";  // its name in the evaluation

// Returns the fastest setting with a drafter of that name whose outputs are the target's; nullptr if there is none.
const evaluate::SettingResult* fastest(const evaluate::TaskResult& task, const std::string& drafter) {
  const evaluate::SettingResult* best = nullptr;
  for (const evaluate::SettingResult& setting : task.settings) {
    const bool counts = setting.drafter_name() == drafter && setting.lossless_check.value_or(false);
    if (counts && (best == nullptr || setting.speed.speedup.value > best->speed.speedup.value)) best = &setting;
  }
  return best;
}

std::string speedup_text(const evaluate::SettingResult& setting) {
  const auto& [value, interval] = setting.speed.speedup;
  return fmt::format("{:.2f} ± {:.2f} times", value, (interval.high - interval.low) / 2);
}

// Returns why drafts gain nothing: how many are accepted, and what they cost.
std::string reason_of(const evaluate::TaskResult& task, const evaluate::SettingResult& setting) {
  std::string cost;
  for (const auto& [name, drafter] : task.drafters) {
    if (name == kDrafter && drafter.cost_ratio)
      cost = fmt::format(", and a draft costs {:.2f} of a step", *drafter.cost_ratio);
  }
  return fmt::format("with it decoding is {} as fast as without: {:.0f} % of its drafts are accepted{}",
                     speedup_text(setting), 100 * setting.acceptance.alpha, cost);
}

// Exports the drafter into the stage's directory. Returns what it made.
fs::path export_drafter(const VerdictOptions& options, const fs::path& directory) {
  const fs::path out = directory / (options.format == "gguf" ? "drafter.gguf" : "export");
  fs::remove_all(out);  // of a killed run
  export_model({.model = options.drafter, .out = out, .format = options.format, .target = options.target});
  return out;
}

void run_verdict(const VerdictOptions& options, const StageContext& run) {
  const evaluate::Results results = evaluate::load_results(options.evaluation);
  const evaluate::TaskResult& task = results.tasks.at(0);
  const evaluate::SettingResult* own = fastest(task, kDrafter);
  const evaluate::SettingResult* lookup = fastest(task, "lookup");
  if (own == nullptr) {
    throw UserError({.where = options.evaluation.string(),
                     .what = "the evaluation has no lossless setting whose drafter is called \"drafter\"",
                     .expected = "one of the runs assisted and speculative",
                     .hint = "set `drafter = [\"drafter\"]` in a run"});
  }
  std::string text;
  if (own->speed.speedup.interval.low > 1) {
    const std::string place = options.format == "none"
                                  ? fmt::format("none, Draftsmith alone decodes with {}", options.drafter.string())
                                  : export_drafter(options, run.directory).string();
    text = fmt::format("lossless {} on {} held-out prompts ({}); export: {}\n", speedup_text(*own), task.lines,
                       own->name, place);
  } else {
    text = fmt::format("a drafter does not pay here, because {} ({} held-out prompts)\n", reason_of(task, *own),
                       task.lines);
  }
  if (lookup != nullptr && lookup->speed.speedup.interval.low > 1) {
    text += fmt::format("prompt look-up, which needs no drafter: lossless {}\n", speedup_text(*lookup));
  }
  write_file_atomic(run.directory / "verdict.txt", text);
}

}  // namespace

std::vector<StageKind> starter_stages() {
  return {make_stage_kind<PromptsOptions>("prompts", 1, run_prompts),
          make_stage_kind<VerdictOptions>("verdict", 1, run_verdict)};
}

}  // namespace draftsmith::recipes
