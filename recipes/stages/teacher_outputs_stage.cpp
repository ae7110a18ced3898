// kind = "teacher-outputs": the target's own outputs for calibration inputs, the corpus of prediction alignment
// (BiLD §3.4: the small model learns the large one's predictions). Makes corpus.h5; resumes at the last whole shard.
#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/sharded_corpus.h"
#include "data/tokenizer.h"
#include "infer/generator.h"
#include "model/checkpoint.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct TeacherOutputsOptions {
  std::filesystem::path model;
  std::filesystem::path corpus;
  int64_t limit = 0;
  int64_t max_new_tokens = 128;
  double temperature = 0.0;
  uint64_t seed = 1;
  std::string dtype = "fp32";
  int64_t batch_size = 64;
  int64_t shard_examples = 2048;
  static Fields<TeacherOutputsOptions> fields();
};

Fields<TeacherOutputsOptions> TeacherOutputsOptions::fields() {
  using T = TeacherOutputsOptions;
  return Fields<T>("teacher outputs stage (kind = \"teacher-outputs\"): makes corpus.h5")
      .add("model", &T::model, Required{}, "Model directory of the target.")
      .add("corpus", &T::corpus, Required{}, "Corpus whose sources are the calibration inputs.")
      .add("limit", &T::limit, Range{0}, Unit{"examples"}, "Calibration inputs used, from the first; 0: all.")
      .add("max_new_tokens", &T::max_new_tokens, Range{1}, Unit{"tokens"}, "Longest output; longer ones are cut.")
      .add("temperature", &T::temperature, Range{0}, "0: greedy outputs; otherwise sampled at this temperature.")
      .add("seed", &T::seed, "Seed of sampling.")
      .add("dtype", &T::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type the target runs in.")
      .add("batch_size", &T::batch_size, Range{1, 4096}, Unit{"rows"}, "Outputs decoded together, sorted by length.")
      .add("shard_examples", &T::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
           "Outputs written at a time: what a killed run can lose.");
}

infer::DecodeOptions decode_options(const TeacherOutputsOptions& options) {
  infer::DecodeOptions decode;
  decode.method = options.temperature > 0 ? "sample" : "greedy";
  if (options.temperature > 0) decode.temperature = options.temperature;
  decode.seed = options.seed;
  decode.max_new_tokens = options.max_new_tokens;
  decode.batch_size = options.batch_size;
  return decode;
}

data::CorpusInfo output_info(const data::Corpus& inputs, const TeacherOutputsOptions& options,
                             const std::string& teacher) {
  data::CorpusInfo info;
  info.tokenizer_hash = inputs.info().tokenizer_hash;
  info.vocabulary = inputs.info().vocabulary;
  info.provenance = {{"teacher", teacher},
                     {"calibration_inputs", options.corpus.string()},
                     {"temperature", fmt::format("{}", options.temperature)},
                     {"max_new_tokens", fmt::format("{}", options.max_new_tokens)}};
  return info;
}

void run_teacher_outputs(const TeacherOutputsOptions& options, const StageRun& run) {
  const data::Corpus inputs(options.corpus);
  const auto teacher = model::load_model(
      options.model, {.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)});
  infer::Generator generator({.target = teacher.get(), .generation = model::load_generation_config(options.model)},
                             decode_options(options));

  const int64_t count = options.limit > 0 ? std::min(options.limit, inputs.size()) : inputs.size();
  data::ShardedCorpusWriter writer(run.directory / "corpus.h5", output_info(inputs, options, options.model.string()),
                                   options.shard_examples);
  Progress progress({.style = run.execution.progress,
                     .title = "teacher outputs",
                     .unit = "outputs",
                     .total = count,
                     .done_before = writer.done()});
  int64_t cut = 0;
  while (writer.done() < count) {
    throw_if_stop_requested(fmt::format("{} of {} outputs are saved; run it again to go on", writer.safe(), count));
    const int64_t begin = writer.done();
    const int64_t end = std::min(count, begin + options.shard_examples);
    std::vector<std::vector<int64_t>> sources;
    for (int64_t i = begin; i < end; ++i) sources.emplace_back(inputs.source(i).begin(), inputs.source(i).end());
    const auto results = generator.generate(sources, static_cast<uint64_t>(begin));
    for (int64_t i = begin; i < end; ++i) {
      const auto& ids = results[static_cast<size_t>(i - begin)].ids;
      if (static_cast<int64_t>(ids.size()) == options.max_new_tokens) ++cut;
      writer.add(inputs.source(i), std::vector<int32_t>(ids.begin(), ids.end()));
    }
    progress.advance(end - begin);
  }
  progress.finish();
  writer.finish();
  if (cut > 0) log_warning("  {} outputs reached max_new_tokens = {}", cut, options.max_new_tokens);
}

}  // namespace

StageKind teacher_outputs_stage() {
  return make_stage_kind<TeacherOutputsOptions>("teacher-outputs", 1, "decodes calibration inputs with the target",
                                                run_teacher_outputs);
}

}  // namespace draftsmith::recipes
