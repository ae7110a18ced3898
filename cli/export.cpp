// `draftsmith export`: writes a model as a directory that other engines load, and verifies the copy.
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/option_flags.h"
#include "recipes/export/export_formats.h"
#include "recipes/export/export_model.h"

namespace draftsmith::cli {

namespace {

struct ExportFlags {
  std::string model;
  std::string out;
  ExecutionOptions execution;
};

int run_export(const recipes::ExportOptions& options, const ExecutionOptions& execution) {
  const ExecutionContext context = begin_execution(execution);
  const SignalWatch watch;
  const recipes::ExportSummary done = recipes::export_model(options, context.device);
  fmt::print("{}: {} parameters as {}, {}; logits on probes {}\n", options.out.string(), done.tensors, done.dtype,
             options.dtype == recipes::kBlockType ? "equal up to half a step" : "equal bit for bit",
             recipes::equality(done));
  if (done.before && done.after) {
    fmt::print("alpha at temperature 1 on {}: {:.4f} before, {:.4f} after; greedy agreement {:.4f} and {:.4f}\n",
               done.alpha_text, done.before->alpha, done.after->alpha, done.before->agreement, done.after->agreement);
  }
  const recipes::ExportFormat& format = recipes::export_format_named(options.format);
  if (format.commands) {
    fmt::print("To serve a target with it as the drafter:\n");
    for (const std::string& command : format.commands(options.target, options.out)) fmt::print("  {}\n", command);
  }
  return 0;
}

}  // namespace

std::function<int()> add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  app.add_option("--model", flags->model, "Model directory to export")->required();
  app.add_option("--out", flags->out, "New directory, of --format gguf a new file; what has content is not overwritten")
      ->required();
  auto options = std::make_shared<OptionFlags<recipes::ExportOptions>>(app);
  add_execution_flags(app, flags->execution);
  app.footer(
      "The written model is loaded again and compared before the directory gets its name. `draftsmith\n"
      "verify DIR` repeats the comparison later. README.md in the directory is a model card.\n"
      "Examples:\n  draftsmith export --model work/quickstart/aligned/model --out drafter\n"
      "  draftsmith export --model DRAFTER --format vllm --dtype bf16 --out DIR \\\n"
      "    --target TARGET --text prompts.txt\n"
      "  draftsmith export --model DRAFTER --format gguf --dtype q8_0 --out drafter.gguf\n"
      "  draftsmith export --model DRAFTER --out DIR --results work/quickstart/evaluation/results.json\n"
      "Then, in Python:\n"
      "  drafter = AutoModelForCausalLM.from_pretrained(\"DIR\")\n"
      "  target.generate(**inputs, assistant_model=drafter)\n"
      "or:  vllm serve TARGET --speculative-config\n"
      "     '{\"method\": \"draft_model\", \"model\": \"DIR\", \"num_speculative_tokens\": 5}'");
  return [flags, options] {
    Problems problems;
    recipes::ExportOptions wanted = options->value(problems);
    problems.throw_if_any();
    wanted.model = flags->model;
    wanted.out = flags->out;
    return run_export(wanted, flags->execution);
  };
}

}  // namespace draftsmith::cli
