// kind = "teacher-outputs": writes the target's outputs for calibration inputs, the corpus of prediction alignment
// (BiLD §3.4: the small model learns the large one's predictions). Makes corpus.h5; goes on with the missing shards.
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
#include "model/files/model_directory.h"
#include "recipes/stages/data_stages.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct TeacherOutputsOptions : DecodingOptions {
  int64_t top_k = 0;
  double top_p = 1.0;
  int64_t shard_examples = 2048;
  static Fields<TeacherOutputsOptions> fields();
};

void check_sampling(const TeacherOutputsOptions& options, const std::string& where, Problems& problems) {
  if (options.temperature > 0 || (options.top_k == 0 && options.top_p == 1)) return;
  problems.add({.where = where + (options.top_k > 0 ? ".top_k" : ".top_p"),
                .what = "greedy outputs are not sampled, so there is nothing to sample from fewer tokens",
                .expected = "a temperature above 0, or neither top_k nor top_p",
                .found = "temperature 0"});
}

Fields<TeacherOutputsOptions> TeacherOutputsOptions::fields() {
  using T = TeacherOutputsOptions;
  return Fields<T>("teacher outputs stage (kind = \"teacher-outputs\"): makes corpus.h5")
      .inherit<DecodingOptions>()
      .add("top_k", &T::top_k, Range{0}, Unit{"tokens"},
           "Sample among the k most likely tokens; 0 is off, whatever the model's own settings are.")
      .add("top_p", &T::top_p, Above{0}, Range{0, 1},
           "Sample from the smallest set of tokens that holds this share of the probability; 1 is off, whatever the "
           "model's own settings are.")
      .add("shard_examples", &T::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
           "Number of outputs written at once; a killed run loses at most these. Outputs of a shard are decoded "
           "together, so in bf16 and fp16 another number may change a token where two are almost equally likely.")
      .check(check_sampling);
}

infer::DecodeOptions decode_options(const TeacherOutputsOptions& options) {
  infer::DecodeOptions decode = options.decoding(infer::baseline_method(options.temperature).name);
  decode.top_k = options.top_k;
  decode.top_p = options.top_p;
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
  info.provenance = options.provenance();
  info.provenance.merge(
      std::map<std::string, std::string>{{data::kJob, run.identity},
                                         {"teacher", teacher},
                                         {"teacher_hash", hash_of(run, teacher)},
                                         {"calibration_inputs", sources},
                                         {"calibration_inputs_hash", hash_of(run, sources)},
                                         {"top_k", fmt::format("{}", options.top_k)},
                                         {"top_p", fmt::format("{}", options.top_p)},
                                         {"prompts", data::continues_prompts(inputs.info()) ? "true" : "false"},
                                         {"max_new_tokens", fmt::format("{}", options.max_new_tokens)}});
  if (is_plain_text(inputs.info())) info.provenance["prompt_tokens"] = fmt::format("{}", options.prompt_tokens);
  return info;
}

// Target with its tokenizer and generator.
struct Teacher {
  Teacher(const TeacherOutputsOptions& options, const StageContext& run, const data::CorpusInfo& inputs)
      : tokenizer(load_model_tokenizer(options.model, inputs.tokenizer_hash)),
        model(model::load_model(options.model,
                                {.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)})),
        settings(model::read_settings(options.model).generation),
        generator({.target = model.get(), .generation = settings, .target_tokenizer = tokenizer.get()},
                  decode_options(options)) {}

  std::unique_ptr<data::Tokenizer> tokenizer;  // null if the directory has none
  std::unique_ptr<model::TransformerModel> model;
  model::GenerationConfig settings;
  infer::Generator generator;
};

// Decodes the sources of a range and adds them with their outputs.
class OutputWriter {
 public:
  OutputWriter(const TeacherOutputsOptions& options, const StageContext& run, const data::Corpus& inputs)
      : limit_(options.max_new_tokens),
        vocabulary_(inputs.info().vocabulary),
        teacher_(options, run, inputs.info()),
        sources_(inputs, teacher_.model->info(), teacher_.tokenizer.get(), options.prompt_tokens) {}

  // Returns whether an output reached max_new_tokens without an end.
  bool is_cut(std::span<const int32_t> ids) const {
    if (static_cast<int64_t>(ids.size()) < limit_) return false;
    const auto& ends = teacher_.settings.eos_ids;
    return std::find(ends.begin(), ends.end(), ids.back()) == ends.end();
  }

  void add(const data::ShardRange& range, data::CorpusWriter& shard) {
    const auto results = teacher_.generator.generate(
        sources_.of_range(range.first, range.last), static_cast<uint64_t>(range.first),
        [](size_t, const auto&) { throw_if_stop_requested("whole shards are saved; run it again to continue"); });
    infer::throw_if_failed(results);
    for (int64_t i = range.first; i < range.last; ++i) {
      const auto& output = results[static_cast<size_t>(i - range.first)].ids;
      std::vector<int32_t> ids(output.begin(), output.end());
      foreign_ += static_cast<int64_t>(std::erase_if(ids, [&](int32_t id) { return id >= vocabulary_; }));
      shard.add(sources_(i), ids);
    }
  }

  // Returns the ids of this process's outputs that the corpus's tokenizer does not have, which are omitted.
  int64_t foreign() const { return foreign_; }

 private:
  int64_t limit_;
  int64_t vocabulary_;
  Teacher teacher_;
  DecodedSources sources_;
  int64_t foreign_ = 0;
};

void run_teacher_outputs(const TeacherOutputsOptions& options, const StageContext& run) {
  const data::Corpus inputs(options.corpus);
  options.require_prompts(inputs);
  OutputWriter outputs(options, run, inputs);
  const int64_t count = options.count(inputs);
  data::ShardedCorpusWriter writer(run.directory / "corpus.h5", output_info(inputs, options, run), count);
  Progress progress({.style = run.execution.progress(),
                     .title = "teacher outputs",
                     .unit = "outputs",
                     .total = count,
                     .done_before = writer.done()});
  const auto write = [&](const data::ShardRange& range) {
    writer.write(range, [&](data::CorpusWriter& shard) { outputs.add(range, shard); });
  };
  const auto written = [&](const data::ShardRange& range) { progress.advance(range.size()); };
  for (const auto& range : divide_shards(run, writer.missing(options.shard_examples), write, written)) {
    writer.adopt(range);
  }
  progress.finish();
  if (outputs.foreign() > 0) log_warning("  {} ids that the tokenizer does not have were omitted", outputs.foreign());
  if (!run.execution.world->leads()) return;
  int64_t cut = 0;
  writer.read_targets([&](std::span<const int32_t> ids) { cut += outputs.is_cut(ids) ? 1 : 0; });
  writer.finish({{"count: outputs cut at max_new_tokens", fmt::format("{}", cut)}});
  if (cut > 0) log_warning("  {} outputs reached max_new_tokens = {}", cut, options.max_new_tokens);
}

}  // namespace

StageKind teacher_outputs_stage() {
  return run_by_all(make_stage_kind<TeacherOutputsOptions>(
      "teacher-outputs", 1, "decodes calibration inputs with the target", run_teacher_outputs));
}

}  // namespace draftsmith::recipes
