#include "recipes/export/export_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "recipes/export/alpha_check.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/hub_names.h"

namespace draftsmith::recipes {

namespace {

// Reports values for the card that the Hub would refuse, and values for a format without a card.
void check_hub_facts(const ExportOptions& options, const std::string& where, Problems& problems) {
  const auto refuse = [&](const std::string& flag, const std::string& expected, const std::string& found) {
    problems.add({.where = where, .what = flag + " is not what the Hub reads", .expected = expected, .found = found});
  };
  if (options.license && !is_hub_license(*options.license)) {
    refuse("--license", "a name in small letters, such as apache-2.0, cc-by-4.0 or other", *options.license);
  }
  for (const std::string& language : options.language) {
    if (!is_hub_language(language)) refuse("--language", "two or three small letters, code or multilingual", language);
  }
  if (options.base_model && !is_hub_repository(*options.base_model)) {
    refuse("--base-model", "the name of a model on the Hub: owner/name", *options.base_model);
  }
  for (const std::string& dataset : options.dataset) {
    if (!is_hub_repository(dataset)) refuse("--dataset", "the name of a data set on the Hub: owner/name", dataset);
  }
  const bool given = options.license || options.base_model || !options.language.empty() || !options.dataset.empty();
  if (given && options.format == kGgufFormat) {
    problems.add({.where = where,
                  .what = "--license, --language, --base-model and --dataset are for the model card",
                  .expected = "--format hf or vllm, which write a card",
                  .found = "--format gguf"});
  }
}

void check_options(const ExportOptions& options, const std::string& where, Problems& problems) {
  if (options.text && !options.target) {
    problems.add({.where = where,
                  .what = "--text is used only to measure alpha against a target",
                  .expected = "--target together with --text",
                  .found = "no target"});
  }
  if (options.dtype == kBlockType && options.format != kGgufFormat) {
    problems.add({.where = where,
                  .what = "--dtype q8_0 is a type of GGUF files",
                  .expected = "--format gguf together with it",
                  .found = "--format " + options.format});
  }
  check_hub_facts(options, where, problems);
}

}  // namespace

Fields<ExportOptions> ExportOptions::fields() {
  using T = ExportOptions;
  return Fields<T>("export: flags of draftsmith export")
      .add("format", &T::format,
           fmt::format("What loads it: {}. hf: Transformers; vllm: the same, checked for vLLM's draft models; "
                       "gguf: one file for llama.cpp.",
                       fmt::join(export_formats().names(), ", ")))
      .add("dtype", &T::dtype, Choices{"stored", "fp32", "bf16", "fp16", kBlockType},
           "Type of the weights in the files; stored: unchanged; q8_0: gguf's blocks of 8-bit integers.")
      .add("target", &T::target, "Model directory of the target, to compare alpha before and after the export.")
      .add("text", &T::text,
           fmt::format("Sources or prompts, one a line, that alpha is measured on, the first {}; absent: a few "
                       "sentences of Draftsmith's.",
                       AlphaCheck::kLines))
      .add("results", &T::results, "results.json of an evaluation with this model, for the model card.")
      .add("shard_megabytes", &T::shard_megabytes, Range{1, 1'000'000}, Unit{"MB"}, "Largest weight file.")
      .add("license", &T::license, "License of the model card, as the Hugging Face Hub names it: apache-2.0.")
      .add("language", &T::language, "Languages of the model card: two or three letters (de), or multilingual.")
      .add("base_model", &T::base_model, "Model on the Hub that this one was made from, for the model card.")
      .add("dataset", &T::dataset, "Data sets on the Hub that this model was trained on, for the model card.")
      .check(check_options);
}

std::string equality(const ExportSummary& summary) {
  if (summary.logits_difference == 0) return "equal";
  return fmt::format("equal up to {:.1e} of the largest", summary.logits_difference);
}

}  // namespace draftsmith::recipes
