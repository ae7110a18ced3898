#include "recipes/stages/continued_training.h"

#include <fmt/format.h>

#include "data/datasets/datasets.h"
#include "recipes/recipe.h"

namespace draftsmith::recipes {

namespace {

constexpr size_t kHashDigits = 16;

// Returns the input's name in StageContext::inputs, of a text in the recipe.
std::string input_key(const std::string& text) {
  if (text.starts_with("@")) return text.substr(0, text.find('/'));
  return data::real_path(text);
}

// Replaces the names of inputs by their hashes: two recipes may call an input differently.
nlohmann::ordered_json hashed(const nlohmann::ordered_json& value, const StageContext& run) {
  if (value.is_structured()) {
    nlohmann::ordered_json all = value;
    for (auto& inner : all) inner = hashed(inner, run);
    return all;
  }
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  const auto input = run.inputs.find(input_key(text));
  if (input == run.inputs.end()) return value;
  const std::string hash = input->second.substr(0, kHashDigits);
  const size_t slash = text.starts_with("@") ? text.find('/') : std::string::npos;
  return slash == std::string::npos ? hash : fmt::format("{} of {}", text.substr(slash + 1), hash);
}

}  // namespace

const char* const kContinueFromHelp =
    "Directory of a finished or failed training run, such as a stage's (\"@stage\"): this stage goes on from its last "
    "checkpoint, with its optimizer, order of data and log. training.length counts from that run's first step. Length, "
    "optimizer.lr, schedule, clip_norm, precision, nonfinite, nonfinite_limit, validation and keep may differ. With "
    "\"@stage\", options that are not given here are that stage's.";

void describe_inputs(train::TrainerInputs& inputs, const StageContext& run,
                     const std::set<std::string>& of_validation) {
  for (const auto& [name, value] : run.options.items()) {
    if (name == "training" || name == "continue_from") continue;
    const std::string text = value.is_null() ? "none" : hashed(value, run).dump();
    (of_validation.contains(name) ? inputs.validated : inputs.shared)[name] = text;
  }
}

}  // namespace draftsmith::recipes
