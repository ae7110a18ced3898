// `draftsmith logits`: writes teacher-forced logits of given targets as HDF5, to compare implementations.

#include <memory>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "data/hdf5/hdf5.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/load_models.h"

namespace draftsmith::cli {
namespace {

struct LogitsFlags {
  std::string model;
  std::string source;
  std::string target;
  std::string out;
  std::string dtype = "fp32";
  bool ids = false;
  Execution execution;
};

// Positions computed at once: 32 MB of a vocabulary of 32,000.
constexpr int64_t kPositions = 256;

void require_same_lines(const LogitsFlags& flags, size_t sources, size_t targets) {
  if (sources == targets) return;
  throw UserError({.where = flags.target,
                   .what = "sources and targets differ in their number of lines",
                   .expected = fmt::format("{} lines, as in {}", sources, flags.source),
                   .found = fmt::format("{} lines", targets),
                   .hint = "each target belongs to the source on the same line"});
}

void write_line(model::LanguageModel& model, const infer::ForcedBatch& line, size_t dataset, data::Hdf5Writer& writer) {
  infer::TeacherForcing forcing(model, line);
  for (int64_t done = 0; done < forcing.longest(); done += kPositions) {
    const auto logits = forcing.next(kPositions).squeeze(0).to(at::kCPU, at::kFloat).contiguous();  // [L,V]
    writer.append(dataset, std::span<const float>(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())));
  }
}

int run_logits(const LogitsFlags& flags) {
  const c10::Device device = begin_execution(flags.execution);
  const at::NoGradGuard no_grad;
  const auto loaded =
      infer::load_model_directory(flags.model, {.device = device, .dtype = parse_weight_type(flags.dtype)});
  const auto sources = read_token_lines(flags.source, loaded, LineKind::kSource, flags.ids);
  const auto targets = read_token_lines(flags.target, loaded, LineKind::kTarget, flags.ids);
  require_same_lines(flags, sources.size(), targets.size());
  data::Hdf5Writer writer(flags.out);
  const SignalWatch signals;
  for (size_t line = 0; line < sources.size(); ++line) {
    throw_if_stop_requested("Nothing was written.");
    const size_t dataset =
        writer.create(fmt::format("/logits/{}", line), data::Hdf5Type::kFloat32, loaded.model->info().vocabulary);
    write_line(*loaded.model, {std::span(&sources[line], 1), std::span(&targets[line], 1)}, dataset, writer);
  }
  writer.finish();
  return 0;
}

}  // namespace

Action add_logits(CLI::App& app) {
  auto flags = std::make_shared<LogitsFlags>();
  app.add_option("--model", flags->model, "Model directory")->required();
  app.add_option("--source", flags->source, "File with one source (or prompt of a decoder-only model) a line")
      ->required();
  app.add_option("--target", flags->target, "File with one target a line; an EOS is added to text, not to ids")
      ->required();
  app.add_option("--out", flags->out, "HDF5 file to write: /logits/<line> [T,V] in fp32, lines from 0")->required();
  app.add_flag("--ids", flags->ids, "Read token ids instead of text");
  app.add_option("--dtype", flags->dtype, "Type of the computation: fp32, bf16, fp16, fp64 or int8")
      ->capture_default_str();
  add_execution_flags(app, flags->execution);
  app.footer(
      "Row t of a dataset holds the logits for target position t, given all earlier positions.\n"
      "Example:\n  draftsmith logits --model DIR --source test.de --target test.en --out logits.h5");
  return [flags] { return run_logits(*flags); };
}

}  // namespace draftsmith::cli
