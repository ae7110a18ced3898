#include "evaluate/results/examples.h"

#include <algorithm>
#include <map>

#include "base/utf8.h"
#include "evaluate/measure/failures.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kLines = 3;
constexpr size_t kSettings = 6;
constexpr size_t kFewestTokens = 8;
constexpr size_t kMostTokens = 60;

const char* origin_name(infer::TokenOrigin origin) {
  switch (origin) {
    case infer::TokenOrigin::kDrafted:
      return "drafted";
    case infer::TokenOrigin::kUnverified:
      return "unverified";
    case infer::TokenOrigin::kTarget:
      return "target";
    case infer::TokenOrigin::kRejected:
      return "rejected";
  }
  return "target";
}

// Returns the first lines whose greedy outputs are neither very short nor long.
std::vector<size_t> chosen_lines(const SettingRecords& greedy) {
  std::vector<size_t> lines;
  for (size_t line = 0; line < greedy.size() && lines.size() < kLines; ++line) {
    const size_t tokens = greedy[line].ids.size();
    if (tokens >= kFewestTokens && tokens <= kMostTokens) lines.push_back(line);
  }
  return lines;
}

// Returns the setting with the most tokens a target run of each method that drafts for the target, in the order of the
// suite.
std::vector<const Setting*> chosen_settings(const MeasuredTask& measured) {
  std::map<std::string, const Setting*> chosen;
  const auto tokens = [&](const Setting& setting) {
    return sum_of_stats(measured.records.at(setting.label)).tokens_per_target_run();
  };
  for (const SettingRow& row : measured.rows) {
    const Setting& setting = row.settings;
    if (!setting.decode.drafts() || !setting.repeats.empty()) continue;
    const Setting*& best = chosen[setting.method()];
    if (best == nullptr || tokens(setting) > tokens(*best)) best = &setting;
  }
  std::vector<const Setting*> settings;
  for (const SettingRow& row : measured.rows) {
    const auto found = chosen.find(row.settings.method());
    if (found != chosen.end() && found->second == &row.settings) settings.push_back(found->second);
  }
  return settings;
}

// Writer of tokens as the texts that they add to what stands before them.
class TokenTexts {
 public:
  TokenTexts(const Engine& engine, bool ids) : engine_(engine), ids_(ids) {}

  void add(const infer::TracedToken& token) {
    const bool rejected = token.origin == infer::TokenOrigin::kRejected;
    if (!rejected) rejected_.clear();
    std::string text = text_behind(joined(kept_, rejected_), {token.id});
    // EOS has no text.
    if (!text.empty()) texts_.push_back({std::move(text), origin_name(token.origin)});
    (rejected ? rejected_ : kept_).push_back(token.id);
  }
  std::vector<TokenText> texts() { return std::move(texts_); }

 private:
  using Ids = std::vector<int64_t>;

  static Ids joined(Ids first, const Ids& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  // Returns the text that `added` adds. Tokens of parts of characters have the text that they have alone.
  std::string text_behind(const Ids& before, const Ids& added) const {
    const std::string old = engine_.text(before, ids_);
    const std::string all = engine_.text(joined(before, added), ids_);
    return replace_invalid_utf8(all.starts_with(old) ? all.substr(old.size()) : engine_.text(added, ids_));
  }

  const Engine& engine_;
  bool ids_;
  Ids kept_;
  Ids rejected_;  // of the draft at hand
  std::vector<TokenText> texts_;
};

Example example_of(const MeasuredTask& measured, size_t line, const Engine& engine) {
  const auto& references = measured.data.references;
  const LineRecord& greedy = measured.records.at(measured.rows.front().settings.label)[line];
  Example example;
  example.line = static_cast<int64_t>(line);
  example.source = replace_invalid_utf8(measured.data.sources[line]);
  if (line < references.size() && !references[line].empty()) {
    example.reference = replace_invalid_utf8(references[line].front());
  }
  example.greedy = replace_invalid_utf8(engine.text(greedy.ids, measured.task->ids));
  return example;
}

// Adds the setting's output of a line, unless the engine knows no origins.
void add_output(const MeasuredTask& measured, size_t line, const Setting& setting, Engine& engine, Example& example) {
  TokenTexts texts(engine, measured.task->ids);
  for (const auto& token :
       engine.trace(setting, measured.prompts[line], static_cast<int64_t>(line), measured.max_new_tokens)) {
    texts.add(token);
  }
  ExampleOutput output{setting.label, texts.texts()};
  if (!output.tokens.empty()) example.outputs.push_back(std::move(output));
}

}  // namespace

std::vector<Example> example_outputs(const MeasuredTask& measured, Engine& engine,
                                     std::vector<SettingFailure>& failures) {
  auto settings = chosen_settings(measured);
  std::vector<Example> examples;
  for (const size_t line : chosen_lines(measured.records.at(measured.rows.front().settings.label))) {
    Example example = example_of(measured, line, engine);
    std::erase_if(settings, [&](const Setting* setting) {
      if (example.outputs.size() == kSettings) return false;
      const auto message = failure_of([&] { add_output(measured, line, *setting, engine, example); });
      if (message) failures.push_back({setting->label, "examples", *message});
      return message.has_value();
    });
    if (!example.outputs.empty()) examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace draftsmith::evaluate
