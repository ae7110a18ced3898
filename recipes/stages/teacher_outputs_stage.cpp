// kind = "teacher-outputs": writes the target's outputs for calibration inputs, the corpus of prediction alignment
// (BiLD §3.4: the small model learns the large one's predictions). Makes corpus.h5; resumes at the last whole shard.
#include <algorithm>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/sharded_corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/generator.h"
#include "model/files/checkpoint.h"
#include "recipes/stages/provenance.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/tokenizers.h"

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
      .add("limit", &T::limit, Range{0}, Unit{"examples"}, "Number of calibration inputs, from the first; 0: all.")
      .add("max_new_tokens", &T::max_new_tokens, Range{1}, Unit{"tokens"},
           "Length of the longest output; longer ones are cut.")
      .add("temperature", &T::temperature, Range{0}, "Temperature of sampling; 0: greedy outputs.")
      .add("seed", &T::seed, "Seed of sampling.")
      .add("dtype", &T::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type of the target.")
      .add("batch_size", &T::batch_size, Range{1, 4096}, Unit{"rows"}, "Outputs decoded together, sorted by length.")
      .add("shard_examples", &T::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
           "Number of outputs written at once; a killed run loses at most these.");
}

infer::DecodeOptions decode_options(const TeacherOutputsOptions& options) {
  infer::DecodeOptions decode;
  decode.method = infer::baseline_method(options.temperature).name;
  if (options.temperature > 0) decode.temperature = options.temperature;
  decode.seed = options.seed;
  decode.max_new_tokens = options.max_new_tokens;
  decode.batch_size = options.batch_size;
  return decode;
}

// Returns the hash of the input that input_name() names.
std::string hash_of(const StageContext& run, const std::string& name) {
  const auto input = run.inputs.find(name.substr(0, name.starts_with('@') ? name.find('/') : std::string::npos));
  return input == run.inputs.end() ? "unknown" : input->second;
}

data::CorpusInfo output_info(const data::Corpus& inputs, const TeacherOutputsOptions& options,
                             const StageContext& run) {
  const std::string teacher = input_name(run, "model", options.model);
  const std::string sources = input_name(run, "corpus", options.corpus);
  data::CorpusInfo info;
  info.tokenizer_hash = inputs.info().tokenizer_hash;
  info.vocabulary = inputs.info().vocabulary;
  info.provenance = {{data::kJob, run.identity},
                     {"teacher", teacher},
                     {"teacher_hash", hash_of(run, teacher)},
                     {"calibration_inputs", sources},
                     {"calibration_inputs_hash", hash_of(run, sources)},
                     {"temperature", fmt::format("{}", options.temperature)},
                     {"seed", fmt::format("{}", options.seed)},
                     {"prompts", data::continues_prompts(inputs.info()) ? "true" : "false"},
                     {"dtype", options.dtype},
                     {"max_new_tokens", fmt::format("{}", options.max_new_tokens)}};
  return info;
}

// Target with its tokenizer and generator.
struct Teacher {
  Teacher(const TeacherOutputsOptions& options, const StageContext& run, const data::CorpusInfo& inputs)
      : tokenizer(load_model_tokenizer(options.model, inputs.tokenizer_hash)),
        model(model::load_model(options.model,
                                {.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)})),
        settings(model::load_generation_config(options.model)),
        generator({.target = model.get(), .generation = settings, .target_tokenizer = tokenizer.get()},
                  decode_options(options)) {}

  std::unique_ptr<data::Tokenizer> tokenizer;  // null if the directory has none
  std::unique_ptr<model::TransformerModel> model;
  model::GenerationConfig settings;
  infer::Generator generator;
};

// Counts of outputs that limits changed, over all runs of the stage.
struct Losses {
  int64_t cut = 0;      // outputs that reached max_new_tokens without an end
  int64_t foreign = 0;  // ids of this run that the corpus's tokenizer does not have, which are omitted

  void count(std::span<const int32_t> ids, int64_t limit, const std::vector<int64_t>& eos) {
    if (static_cast<int64_t>(ids.size()) < limit) return;
    if (std::find(eos.begin(), eos.end(), ids.back()) == eos.end()) ++cut;
  }
};

// Decodes the sources [begin,end) and adds them to the corpus.
void decode_shard(Teacher& teacher, const data::Corpus& inputs, int64_t begin, int64_t end,
                  const std::function<void(std::span<const int32_t> source, std::vector<int32_t> ids)>& add) {
  std::vector<std::vector<int64_t>> sources;
  for (int64_t i = begin; i < end; ++i) sources.emplace_back(inputs.source(i).begin(), inputs.source(i).end());
  const auto results = teacher.generator.generate(sources, static_cast<uint64_t>(begin), [](size_t, const auto&) {
    throw_if_stop_requested("whole shards are saved; run it again to continue");
  });
  infer::throw_if_failed(results);
  for (int64_t i = begin; i < end; ++i) {
    const auto& ids = results[static_cast<size_t>(i - begin)].ids;
    add(inputs.source(i), {ids.begin(), ids.end()});
  }
}

void run_teacher_outputs(const TeacherOutputsOptions& options, const StageContext& run) {
  const data::Corpus inputs(options.corpus);
  Teacher teacher(options, run, inputs.info());
  const std::vector<int64_t>& eos = teacher.settings.eos_ids;
  const int64_t count = options.limit > 0 ? std::min(options.limit, inputs.size()) : inputs.size();
  data::ShardedCorpusWriter writer(run.directory / "corpus.h5", output_info(inputs, options, run),
                                   options.shard_examples);
  Progress progress({.style = run.execution.progress,
                     .title = "teacher outputs",
                     .unit = "outputs",
                     .total = count,
                     .done_before = writer.done()});
  Losses losses;
  writer.read_targets([&](std::span<const int32_t> ids) { losses.count(ids, options.max_new_tokens, eos); });
  while (writer.done() < count) {
    throw_if_stop_requested(fmt::format("{} of {} outputs are saved; run it again to continue", writer.safe(), count));
    const int64_t begin = writer.done();
    const int64_t end = std::min(count, begin + options.shard_examples);
    decode_shard(teacher, inputs, begin, end, [&](std::span<const int32_t> source, std::vector<int32_t> ids) {
      losses.count(ids, options.max_new_tokens, eos);
      losses.foreign +=
          static_cast<int64_t>(std::erase_if(ids, [&](int32_t id) { return id >= inputs.info().vocabulary; }));
      writer.add(source, ids);
    });
    progress.advance(end - begin);
  }
  progress.finish();
  writer.finish({{"count: outputs cut at max_new_tokens", fmt::format("{}", losses.cut)}});
  if (losses.cut > 0) log_warning("  {} outputs reached max_new_tokens = {}", losses.cut, options.max_new_tokens);
  if (losses.foreign > 0) log_warning("  {} ids that the tokenizer does not have were omitted", losses.foreign);
}

}  // namespace

StageKind teacher_outputs_stage() {
  return make_stage_kind<TeacherOutputsOptions>("teacher-outputs", 1, "decodes calibration inputs with the target",
                                                run_teacher_outputs);
}

}  // namespace draftsmith::recipes
