#include "recipes/export/export_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "recipes/export/alpha_check.h"
#include "recipes/export/export_formats.h"

namespace draftsmith::recipes {

namespace {

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
      .check(check_options);
}

std::string equality(const ExportSummary& summary) {
  if (summary.logits_difference == 0) return "equal";
  return fmt::format("equal up to {:.1e} of the largest", summary.logits_difference);
}

}  // namespace draftsmith::recipes
