// An engine for tests of suites: outputs, counts and times are functions of setting and line, so that every number of
// the results can be known beforehand.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/files.h"
#include "evaluate/evaluation.h"

namespace draftsmith::evaluate {

// Words are ids 10, 11, ...; a source line "4" is answered by greedy decoding with four words, reference likewise.
class FakeEngine : public Engine {
 public:
  struct Killed {};  // end of the process, which no one catches

  // Seconds of a line under a setting.
  std::function<double(const Setting&, int64_t line)> seconds = [](const Setting& run, int64_t) {
    return run.decode.drafts() ? 0.05 : 0.1;
  };
  // Words of a line's output under a setting, of greedy decoding's.
  std::function<size_t(const Setting&, int64_t line, size_t words)> length = [](const Setting&, int64_t, size_t words) {
    return words;
  };
  // How many of a line's words a setting gets wrong.
  std::function<int64_t(const Setting&, int64_t line)> errors = [](const Setting&, int64_t) { return 0; };
  // Lines that a setting cannot decode.
  std::function<bool(const Setting&, int64_t line)> fails = [](const Setting&, int64_t) { return false; };
  int64_t wrong_word = 99;  // in place of a word
  // Logits of the model: its own word is the most likely, 98 follows it closely, the others are far behind.
  std::function<double(const Setting&, const TextStart&, int64_t token)> gap =
      [](const Setting&, const TextStart& start, int64_t token) {
        if (token == 10 + std::ssize(start.tokens)) return 0.0;
        return token == 98 ? 1e-5 : 5.0;
      };
  double rounding = 4e-6;  // of these logits
  int64_t rounded_lines = 0;
  // First new token of a sample; none: not recorded. It should be drawn from `distribution`, which falls.
  std::function<int64_t(const Setting&, int64_t line, int64_t sample)> first_token;
  std::vector<double> distribution{0.4, 0.3, 0.2, 0.1};
  std::vector<std::vector<std::vector<int64_t>>> forced_outputs;  // of each forced_alpha()
  double tokens_per_run = 3;
  bool detailed = false;  // records have latencies
  int64_t decodes = 0;
  int64_t fail_after = -1;  // decodes until the machine "dies"
  // What happens in a decoding: an exception is the setting's failure.
  std::function<void(const Setting&, const DecodeBatch&)> death = [](const Setting&, const DecodeBatch&) {};
  std::map<std::string, int64_t> counted;  // counting passes by label
  struct Call {
    std::string label;
    int64_t max_new_tokens;
    bool count;
    int64_t first_line = 0;
    std::optional<int64_t> window = std::nullopt;
    int64_t lines = 0;
  };
  std::vector<Call> calls;  // of decode()

  void check(const Setting& run, Problems& problems) override {
    if (run.method() == "impossible") problems.add({run.label, "no such method", "", "", ""});
  }
  Prompt encode(const std::string& source, const TaskOptions& task, bool& cut) const override {
    const int64_t words = std::stoll(source);
    const int64_t max_tokens = task.max_source_tokens;
    cut = max_tokens > 0 && words > max_tokens;
    return Prompt(static_cast<size_t>(cut ? max_tokens : words), 1);
  }
  std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions&) const override {
    return std::vector<int64_t>(static_cast<size_t>(std::ranges::count(reference, 'w')), 1);
  }
  std::vector<int64_t> encode_continuation(const std::string& source, const TaskOptions& task) const override {
    const int64_t words = std::stoll(source);
    const int64_t rest = task.max_source_tokens > 0 ? std::max<int64_t>(0, words - task.max_source_tokens) : 0;
    return std::vector<int64_t>(static_cast<size_t>(rest), 1);
  }
  std::string text(const std::vector<int64_t>& generated, bool) const override {
    std::string result;
    for (const int64_t id : generated) result += (result.empty() ? "w" : " w") + std::to_string(id);
    return result;
  }
  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    if (fail_after >= 0 && decodes >= fail_after) throw Killed();
    death(run, batch);
    ++decodes;
    calls.push_back(
        {run.label, batch.max_new_tokens, batch.count, batch.first_line, batch.window, std::ssize(batch.prompts)});
    if (batch.count) ++counted[run.label];
    std::vector<LineRecord> records;
    for (size_t i = 0; i < batch.prompts.size(); ++i) {
      records.push_back(line(run, batch.first_line + static_cast<int64_t>(i), batch.prompts[i].size()));
    }
    if (detailed) add_overhead(records, 0);
    // Windows of drafts go on: one token more after each batch.
    for (LineRecord& record : records) {
      if (run.decode.drafts()) record.window = batch.window.value_or(5) + 1;
    }
    return records;
  }
  std::vector<double> logit_gaps(const Setting& run, const TextStart& start, std::span<const int64_t> tokens) override {
    std::vector<double> gaps;
    for (const int64_t token : tokens) gaps.push_back(gap(run, start, token));
    return gaps;
  }
  double logit_rounding(const Setting&, std::span<const Prompt> prompts,
                        const std::vector<std::vector<int64_t>>& outputs) override {
    rounded_lines = std::ssize(prompts);
    if (prompts.size() != outputs.size()) throw std::logic_error("prompts and outputs differ in number");
    return rounding;
  }
  std::vector<TokenMass> first_token_masses(const Setting&, std::span<const Prompt> prompts,
                                            const std::vector<std::vector<int64_t>>& tokens, int64_t) override {
    std::vector<TokenMass> masses;
    for (size_t line = 0; line < prompts.size(); ++line) {
      for (const int64_t token : tokens[line]) masses.push_back(mass_of(token));
    }
    return masses;
  }
  infer::StepCosts step_costs(const Setting&, const Prompt&, const std::vector<int64_t>&, int64_t max_tokens) override {
    infer::StepCosts costs;
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      costs.target.push_back(0.01 * (1 + 0.1 * static_cast<double>(tokens - 1)));
    }
    costs.draft = 0.001;
    return costs;
  }
  infer::ForcedAlpha forced_alpha(const Setting&, std::span<const Prompt> prompts,
                                  const std::vector<std::vector<int64_t>>& outputs) override {
    forced_outputs.push_back(outputs);
    return {0.6, 0.7, static_cast<int64_t>(prompts.size()), {0.8, 1.25}, {0.5, 2.5}};
  }
  infer::EngagedOutputs engage(const EngagementTable&, const infer::EngagementQuestion&,
                               std::span<const Prompt> prompts) override {
    infer::EngagedOutputs outputs;
    for (const Prompt& prompt : prompts) {
      auto& ids = outputs.ids.emplace_back();
      for (size_t i = 0; i < prompt.size(); ++i) ids.push_back(10 + static_cast<int64_t>(i));
      outputs.tokens += std::ssize(ids);
    }
    return outputs;
  }
  nlohmann::ordered_json description() const override { return {{"model", "fake"}}; }
  std::string fingerprint() const override { return "fake"; }

 private:
  TokenMass mass_of(int64_t token) const {
    TokenMass mass;
    for (int64_t id = 0; id < token; ++id) mass.before += distribution.at(static_cast<size_t>(id));
    mass.own = distribution.at(static_cast<size_t>(token));
    return mass;
  }

  LineRecord line(const Setting& run, int64_t index, size_t prompt) const {
    LineRecord record{.repetitions = {infer::PhaseSeconds{.verify = seconds(run, index)}}};
    if (fails(run, index)) {
      record.failure = "the logits are no numbers";
      return record;
    }
    const size_t words = length(run, index, prompt);
    const int64_t wrong = errors(run, index);
    for (size_t i = 0; i < words; ++i) {
      record.ids.push_back(static_cast<int64_t>(i) < wrong ? wrong_word : 10 + static_cast<int64_t>(i));
    }
    for (int64_t sample = 0; first_token && sample < run.decode.num_samples; ++sample) {
      record.first_tokens.push_back(first_token(run, index, sample));
    }
    const auto tokens = static_cast<int64_t>(words);
    record.stats.emitted = tokens;
    record.stats.target_runs = record.stats.target_tokens =
        run.decode.drafts() ? static_cast<int64_t>(static_cast<double>(tokens) / tokens_per_run) : tokens;
    if (run.decode.drafts()) {
      record.stats.draft_runs = record.stats.drafted = tokens;
      record.stats.target_tokens += tokens;
      record.stats.accepted = tokens / 2;
      record.stats.overlap_sum = 0.8 * static_cast<double>(tokens);
      record.stats.overlap_count = tokens;
      record.stats.accepted_histogram = {1, 2};
    }
    return record;
  }
};

// A directory with a task of lines of 6..13 words, answered rightly by greedy decoding.
struct FakeSuite {
  TemporaryDirectory directory;
  SuiteOptions options;

  explicit FakeSuite(std::initializer_list<const char*> methods = {}, int64_t lines = 24) {
    std::string sources, references;
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t words = 6 + line % 8;
      sources += std::to_string(words) + "\n";
      for (int64_t i = 0; i < words; ++i) references += (i == 0 ? "w" : " w") + std::to_string(10 + i);
      references += "\n";
    }
    write_file_atomic(directory / "source", sources);
    write_file_atomic(directory / "reference", references);
    options.model = directory.path();
    options.drafter = {{"small", directory.path()}};
    options.task = {task("test")};
    for (const char* method : methods) options.run.push_back(run(method));
    options.resamples = 200;
    options.warmup = 2;
  }
  // Returns a task of these lines. All tasks but "test" read copies of the files, since no task may share the lines of
  // validation data.
  TaskOptions task(const std::string& name) const {
    TaskOptions result{.name = name, .source = file_of(name, "source"), .references = {file_of(name, "reference")}};
    return result;
  }
  static SettingGrid run(const std::string& method) {
    SettingGrid result;
    result.decode.method = method;
    if (result.decode.drafts()) result.drafter = {"small"};
    return result;
  }
  SuiteResult evaluate(FakeEngine& engine) const {
    Problems problems;
    validate_options(options, "", problems);
    problems.throw_if_any();
    return run_evaluation(options, directory / "out", engine);
  }
  // Evaluates until the machine "dies" after so many decodes.
  void die_after(int64_t decodes) const {
    FakeEngine killed;
    killed.fail_after = decodes;
    EXPECT_THROW(evaluate(killed), FakeEngine::Killed);
  }

 private:
  std::filesystem::path file_of(const std::string& task, const std::string& kind) const {
    if (task == "test") return directory / kind;
    write_file_atomic(directory / (kind + "." + task), read_file(directory / kind));
    return directory / (kind + "." + task);
  }
};

// Returns a setting's results.
inline const SettingResult& setting_of(const Results& results, const std::string& name, size_t task = 0) {
  const SettingResult* found = results.tasks.at(task).find(name);
  if (found == nullptr) throw std::runtime_error("no setting " + name);
  return *found;
}

// Returns the same in JSON.
inline nlohmann::ordered_json json_of(const SuiteResult& result, const std::string& name, size_t task = 0) {
  const auto entry = to_json(result.results).at("tasks").at(task);
  if (entry.at("baseline").at("name") == name) return entry.at("baseline");
  for (const auto& run : entry.at("runs")) {
    if (run.at("name") == name) return run;
  }
  throw std::runtime_error("no setting " + name);
}

}  // namespace draftsmith::evaluate
