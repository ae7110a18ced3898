#include "recipes/export/card_front_matter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "recipes/export/hub_names.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

// Text of the user's in double quotes, which YAML reads as JSON does.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string list_of(const std::string& key, const std::vector<std::string>& values) {
  std::string text = key + ":\n";
  for (const std::string& value : values) text += "- " + quoted(value) + "\n";
  return values.empty() ? "" : text;
}

// Returns a name without spaces, as the Hub has for data sets.
std::string slug(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !is_hub_letter(c); }, '-');
  return text;
}

std::string metric(const std::string& type, const std::string& name, double value) {
  if (!std::isfinite(value)) return "";
  return fmt::format("    - type: {}\n      name: {}\n      value: {:.4g}\n", quoted(type), quoted(name), value);
}

std::string metrics_of(const evaluate::SettingResult& setting) {
  std::string text;
  for (const auto& score : setting.quality.scores) {
    text += metric(slug(score.name), score.name + " of " + setting.name, score.value);
  }
  return text + metric("acceptance_rate", "alpha of " + setting.name, setting.acceptance.alpha) +
         metric("tokens_per_target_run", "tokens per target run of " + setting.name,
                setting.acceptance.tokens_per_target_run);
}

std::string model_index(const std::string& name, const std::string& kind, const evaluate::Results& measured) {
  std::string results;
  for (const auto& task : measured.tasks) {
    if (task.chooses) continue;  // its numbers flatter the settings that were chosen by them
    std::string metrics;
    for (const auto& setting : task.settings) {
      if (!setting.repeats) metrics += metrics_of(setting);
    }
    if (metrics.empty()) continue;
    results += fmt::format("  - task:\n      type: {}\n    dataset:\n      name: {}\n      type: {}\n    metrics:\n{}",
                           kind, quoted(task.name), quoted(slug(task.name)), metrics);
  }
  return results.empty() ? "" : fmt::format("model-index:\n- name: {}\n  results:\n{}", quoted(name), results);
}

}  // namespace

std::string card_front_matter(const ExportOptions& options, const model::ModelDescription& model,
                              const evaluate::Results* measured) {
  const std::string kind = model.config.encoder_decoder ? "text2text-generation" : "text-generation";
  std::string text = "---\nlibrary_name: transformers\n";
  // The Hub has no tag for encoder-decoders of every use, and its widget would run them as another task.
  if (!model.config.encoder_decoder) text += "pipeline_tag: " + kind + "\n";
  if (options.license) text += "license: " + quoted(*options.license) + "\n";
  text += list_of("language", options.language);
  if (options.base_model) text += "base_model: " + quoted(*options.base_model) + "\n";
  text += list_of("datasets", options.dataset);
  text += "tags:\n- draftsmith\n- speculative-decoding\n- draft-model\n- " + model.family + "\n";
  const fs::path name = options.out.has_filename() ? options.out : options.out.parent_path();
  if (measured) text += model_index(name.filename().string(), kind, *measured);
  return text + "---\n";
}

}  // namespace draftsmith::recipes
