// `draftsmith export`: writes a model for other engines.
#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "recipes/export/export_model.h"

namespace draftsmith::cli {

namespace {

int run_export(const recipes::ExportOptions& options) {
  const SignalWatch watch;
  const recipes::ExportSummary done = recipes::export_model(options);
  fmt::print("{}: {} parameters as {}\n", options.out.string(), done.parameters, done.dtype);
  if (options.format == "vllm") {
    fmt::print("To serve a target with it as the drafter:\n  {}\n",
               recipes::vllm_command(options.target.value_or("TARGET"), options.out));
  }
  return 0;
}

}  // namespace

Action add_export(CLI::App& app) {
  auto paths = std::make_shared<recipes::ExportOptions>();
  app.add_option("--model", paths->model, "Model directory to export")->required();
  app.add_option("--out", paths->out, "New directory, of --format gguf a new file; what has content is not overwritten")
      ->required();
  auto options = std::make_shared<OptionFlags<recipes::ExportOptions>>(app);
  app.footer(
      "The directory gets its name when it is complete. README.md in it is a model card.\n"
      "Examples:\n  draftsmith export --model work/quickstart/aligned/model --out drafter\n"
      "  draftsmith export --model DRAFTER --format vllm --dtype bf16 --out DIR --target TARGET\n"
      "  draftsmith export --model DRAFTER --format gguf --dtype q8_0 --out drafter.gguf\n"
      "Then, in Python:\n"
      "  drafter = AutoModelForCausalLM.from_pretrained(\"DIR\")\n"
      "  target.generate(**inputs, assistant_model=drafter)\n"
      "or, with an exported target:\n"
      "  llama-server --model target.gguf --model-draft drafter.gguf --draft-max 5");
  return [paths, options] {
    Problems problems;
    recipes::ExportOptions wanted = options->value(problems);
    problems.throw_if_any();
    wanted.model = paths->model;
    wanted.out = paths->out;
    return run_export(wanted);
  };
}

}  // namespace draftsmith::cli
