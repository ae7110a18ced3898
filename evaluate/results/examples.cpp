// Examples of a task: outputs of a few lines with the origins of their tokens, as in BiLD's figure 9 (Kim et al. 2023).
#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "evaluate/results/summary.h"
#include "infer/forced/decisions.h"

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

// Returns the setting with the most tokens a target run of each method that drafts for the target, of equals the first.
std::vector<const Setting*> chosen_settings(const MeasuredTask& measured) {
  std::vector<const Setting*> chosen;
  const auto tokens = [&](const Setting& setting) {
    return sum_of_stats(measured.records.at(setting.label)).tokens_per_target_run();
  };
  for (const Setting& setting : measured.settings) {
    if (!setting.decode.drafts() || !setting.repeats.empty()) continue;
    const auto best = std::ranges::find(chosen, setting.method(), &Setting::method);
    if (best == chosen.end()) {
      chosen.push_back(&setting);
    } else if (tokens(setting) > tokens(**best)) {
      *best = &setting;
    }
  }
  return chosen;
}

// Returns tokens as the texts that they add to what stands before them. Tokens of parts of characters have the text
// that they have alone, and EOS has none.
std::vector<TokenText> token_texts(const std::vector<infer::TracedToken>& tokens, const Engine& engine, bool ids) {
  std::vector<TokenText> texts;
  std::vector<int64_t> kept;
  std::vector<int64_t> before;  // with rejected tokens of the draft at hand
  for (const infer::TracedToken& token : tokens) {
    const bool rejected = token.origin == infer::TokenOrigin::kRejected;
    if (!rejected) before = kept;
    const std::string old = engine.text(before, ids);
    before.push_back(token.id);
    if (!rejected) kept = before;
    const std::string all = engine.text(before, ids);
    std::string text =
        replace_invalid_utf8(all.starts_with(old) ? all.substr(old.size()) : engine.text({token.id}, ids));
    if (!text.empty()) texts.push_back({std::move(text), origin_name(token.origin)});
  }
  return texts;
}

}  // namespace

std::vector<Example> example_outputs(const MeasuredTask& measured, Engine& engine,
                                     std::vector<SettingFailure>& failures) {
  const bool ids = measured.task->ids;
  const auto& references = measured.data.references;
  const SettingRecords& greedy = measured.records.at(kGreedyLabel);
  auto settings = chosen_settings(measured);
  std::vector<Example> examples;
  for (const size_t line : chosen_lines(greedy)) {
    const bool scored = line < references.size() && !references[line].empty();
    const auto number = static_cast<int64_t>(line);
    Example example{.line = number,
                    .source = replace_invalid_utf8(measured.data.sources[line]),
                    .reference = scored ? replace_invalid_utf8(references[line].front()) : "",
                    .greedy = replace_invalid_utf8(engine.text(greedy[line].ids, ids)),
                    .outputs = {}};
    std::erase_if(settings, [&](const Setting* setting) {
      if (example.outputs.size() == kSettings) return false;
      const auto message = failure_of([&] {
        const auto trace = engine.trace(*setting, measured.prompts[line], number, measured.max_new_tokens);
        ExampleOutput output{setting->label, token_texts(trace, engine, ids)};
        // Engines that know no origins trace nothing.
        if (!output.tokens.empty()) example.outputs.push_back(std::move(output));
      });
      if (message) failures.push_back({setting->label, "examples", *message});
      return message.has_value();
    });
    if (!example.outputs.empty()) examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace draftsmith::evaluate
