// `draftsmith bench`: measures the speed of a model's steps beside the rates of the machine.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "model/files/checkpoint.h"

namespace draftsmith::cli {
namespace {

namespace fs = std::filesystem;

struct BenchFlags {
  std::string model;
  std::string dtype = "fp32";
  std::vector<int64_t> tokens = {1, 2, 5, 8, 11, 16};
  int64_t batch = 1;
  int64_t length = 64;
  int64_t source_length = 32;
  int64_t rounds = 25;
  fs::path json;   // empty: none
  fs::path curve;  // empty: none
  ExecutionOptions execution;
};

infer::SpeedQuestion question_of(const BenchFlags& flags) {
  infer::SpeedQuestion question;
  question.type = parse_weight_type(flags.dtype);
  question.tokens = flags.tokens;
  question.tokens.push_back(1);  // what the others are compared with
  std::ranges::sort(question.tokens);
  question.tokens.erase(std::unique(question.tokens.begin(), question.tokens.end()), question.tokens.end());
  question.rows = flags.batch;
  question.length = flags.length;
  question.source = flags.source_length;
  question.rounds = flags.rounds;
  return question;
}

// Throws a UserError if files could not be written in the end, so that nothing is measured in vain.
void require_places(const BenchFlags& flags) {
  for (const fs::path& file : {flags.json, flags.curve}) {
    if (file.empty()) continue;
    if (fs::is_directory(file)) throw UserError({file.string(), "is a directory", "a file to write", "", ""});
    AtomicPath place(file);
  }
  if (!flags.json.empty() && flags.json == flags.curve) {
    throw UserError({.where = "draftsmith bench",
                     .what = "--json and --curve name one file",
                     .expected = "two files: all numbers, and the curve that `draftsmith plan` reads",
                     .found = flags.json.string()});
  }
}

// Throws a UserError if the steps or the prompt pass the model's positions.
void require_room(const model::ModelInfo& model, const infer::SpeedQuestion& question) {
  if (model.max_positions == 0) return;
  const int64_t longest = question.length + question.tokens.back();
  if (longest > model.max_positions) {
    throw UserError(
        {.where = model.name,
         .what = "the model has too few positions for these steps",
         .expected = fmt::format("--length and the largest of --tokens of at most {} together", model.max_positions),
         .found = fmt::format("{} + {}", question.length, question.tokens.back()),
         .hint = fmt::format("give a smaller --length, at most {}",
                             std::max<int64_t>(model.max_positions - question.tokens.back(), 1))});
  }
  if (!model.encoder_decoder && question.source >= model.max_positions) {
    throw UserError({.where = model.name,
                     .what = "the model has too few positions for this prompt",
                     .expected = fmt::format("--source-length below {}", model.max_positions),
                     .found = std::to_string(question.source)});
  }
}

infer::StepCurve curve_of(const BenchFlags& flags, const ExecutionContext& context, const model::ModelInfo& model,
                          const infer::ModelSpeed& speed) {
  infer::StepCurve curve;
  curve.model = flags.model;
  curve.dtype = flags.dtype;
  curve.processor = context.device.is_cpu() ? cpu_name() : device_description(context.device);
  curve.threads = context.threads;
  curve.rows = flags.batch;
  curve.length = flags.length;
  curve.source = model.encoder_decoder ? flags.source_length : 0;
  for (const infer::StepSpeed& step : speed.steps) curve.points.push_back({step.tokens, step.seconds.median});
  return curve;
}

infer::ModelSpeed measure(model::TransformerModel& model, const infer::SpeedQuestion& question, ProgressStyle style) {
  const SignalWatch signals;
  Progress progress({style, "measuring", "rounds", question.rounds + infer::kSpeedWarmup});
  infer::ModelSpeed speed = infer::measure_speed(model, question, [&] {
    progress.advance();
    throw_if_stop_requested("Nothing was written.");
  });
  progress.finish();
  return speed;
}

int run_bench(const BenchFlags& flags) {
  const ExecutionContext context = begin_execution(flags.execution);
  const infer::SpeedQuestion question = question_of(flags);
  require_places(flags);
  const auto model = model::load_model(flags.model, {.device = context.device, .dtype = question.type});
  require_room(model->info(), question);
  BenchReport report{question, measure(*model, question, context.progress), {}, {}, context.device.str()};
  report.curve = curve_of(flags, context, model->info(), report.speed);
  const model::TransformerConfig& config = model->config();
  report.architecture = fmt::format("{}, {} decoder layers of width {}, vocabulary {}", config.family,
                                    config.decoder_layers, config.width, config.vocabulary_rows());
  std::cout << bench_text(report);
  if (!flags.json.empty()) write_json(flags.json, bench_json(report));
  if (!flags.curve.empty()) infer::write_step_curve(flags.curve, report.curve);
  return 0;
}

constexpr const char* kFooter =
    "Weights as they are, random tokens. Every round measures everything once, so that a share compares\n"
    "numbers of the same moment; a busy machine shows in the percentiles. A step is timed until its most\n"
    "likely tokens are on the host.\n"
    "Examples:\n"
    "How far a target's steps are from the machine's limits, in two types:\n"
    "  draftsmith bench --model work/quickstart/target/model\n"
    "  draftsmith bench --model work/quickstart/target/model --dtype int8 --threads 1\n"
    "Windows that would pay, from measured curves of target and drafter:\n"
    "  draftsmith bench --model TARGET --curve target.json\n"
    "  draftsmith bench --model DRAFTER --tokens 1 --curve drafter.json\n"
    "  draftsmith plan speculative --alpha 0.8 --curve target.json --drafter-curve drafter.json";

}  // namespace

std::function<int()> add_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  const auto size = [](int64_t most) { return CLI::Range(int64_t{1}, most); };
  app.add_option("--model", flags->model, "Directory of the model")->required();
  app.add_option("--dtype", flags->dtype, "fp32, bf16, fp16 or fp64; int8: weights in a quarter of the memory, on CPUs")
      ->capture_default_str();
  app.add_option("--tokens", flags->tokens,
                 "Tokens that a step processes in each row, comma-separated; 1 is always among them")
      ->delimiter(',')
      ->check(size(infer::kLongestStep))
      ->capture_default_str();
  app.add_option("--batch", flags->batch, "Rows that are decoded together")->check(size(65536))->capture_default_str();
  app.add_option("--length", flags->length, "Tokens of each row in the cache before a step")
      ->check(size(10'000'000))
      ->capture_default_str();
  app.add_option("--source-length", flags->source_length,
                 "Tokens of a source, or of the prompt of a decoder-only model")
      ->check(size(10'000'000))
      ->capture_default_str();
  app.add_option("--rounds", flags->rounds, "Rounds that count, after two that warm up")
      ->check(size(1'000'000))
      ->capture_default_str();
  app.add_option("--json", flags->json, "Also write every number to this file");
  app.add_option("--curve", flags->curve, "Also write the times of steps to this file, which `draftsmith plan` reads");
  add_execution_flags(app, flags->execution);
  app.footer(kFooter);
  return [flags] { return run_bench(*flags); };
}

}  // namespace draftsmith::cli
