// kind = "router-data": decodes a corpus's sources with a target and a drafter and collects training data of a router
// (infer/router_collection.h). Makes router_data.h5; resumes at the last whole shard.
#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/sharded_corpus.h"
#include "data/router/router_data.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/acceptance/rejection.h"
#include "infer/drafters/drafter.h"
#include "infer/generator.h"
#include "infer/router_collection.h"
#include "infer/router_loading.h"
#include "infer/windows/fixed.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/router.h"
#include "recipes/stages/provenance.h"
#include "recipes/stages/stages.h"
#include "recipes/stages/tokenizers.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

struct RouterDataOptions {
  fs::path model;
  fs::path drafter;
  fs::path corpus;
  int64_t limit = 2000;
  int64_t prompt_tokens = 16;
  int64_t top_k = 8;
  int64_t window = 16;
  double temperature = 0.0;
  int64_t max_new_tokens = 128;
  uint64_t seed = 1;
  std::string dtype = "fp32";
  int64_t batch_size = 16;
  int64_t shard_examples = 256;
  static Fields<RouterDataOptions> fields();
};

Fields<RouterDataOptions> RouterDataOptions::fields() {
  using R = RouterDataOptions;
  return Fields<R>("router data stage (kind = \"router-data\"): makes router_data.h5")
      .add("model", &R::model, Required{}, "Model directory of the target.")
      .add("drafter", &R::drafter, Required{},
           "Directory of the router's drafter: a model, or a Tandem secondary of the target.")
      .add("corpus", &R::corpus, Required{}, "Corpus whose sources to decode.")
      .add("limit", &R::limit, Range{0}, Unit{"examples"}, "Number of sources to decode, from the first; 0: all.")
      .add("prompt_tokens", &R::prompt_tokens, Range{1, 1 << 20}, Unit{"tokens"},
           "Decoder-only models: number of first tokens of plain text that become its prompt.")
      .add("top_k", &R::top_k, Range{1, static_cast<double>(model::kMostRouterTokens)}, Unit{"tokens"},
           "Number of most likely tokens of the drafter to keep for each position; a router may read fewer.")
      .add("window", &R::window, Range{1, static_cast<double>(model::kMostRouterDraft)}, Unit{"tokens"},
           "Fixed draft window, as long as the router's longest draft.")
      .add("temperature", &R::temperature, Range{0, 1000},
           "Temperature of decoding; 0: greedy. The collected distributions are at temperature 1 in any "
           "case.")
      .add("max_new_tokens", &R::max_new_tokens, Range{1}, Unit{"tokens"}, "Longest output.")
      .add("seed", &R::seed, "Seed of sampling.")
      .add("dtype", &R::dtype, Choices{"fp32", "bf16", "fp16", "fp64"}, "Number type of both models.")
      .add("batch_size", &R::batch_size, Range{1, 4096}, Unit{"rows"}, "Sources decoded together, sorted by length.")
      .add("shard_examples", &R::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
           "Number of sources whose positions are written at once; a killed run loses at most these.");
}

// Target and drafter, and a generator whose decoding is observed.
class Collection {
 public:
  Collection(const RouterDataOptions& options, const StageContext& run, const data::CorpusInfo& inputs)
      : prompt_tokens_(options.prompt_tokens),
        tokenizer_(load_model_tokenizer(options.model, inputs.tokenizer_hash)),
        collector_(options.top_k) {
    const infer::DrafterSpec spec = infer::parse_router_drafter(options.drafter, "drafter");
    const model::LoadOptions load{.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)};
    target_ = model::load_model(options.model, load);
    drafter_ = infer::load_drafter(spec, options.model, load);
    infer::GenerationModels models;
    models.target = target_.get();
    models.drafter = drafter_;
    models.generation = model::load_generation_config(options.model);
    models.target_tokenizer = tokenizer_.get();
    Problems problems;
    drafter_->check(models.draft_target(), problems);
    problems.throw_if_any();
    generator_.emplace(
        models, decode_options(options),
        collector_.around({drafter_->make(models.draft_target()), std::make_unique<infer::FixedWindow>(options.window),
                           std::make_unique<infer::RejectionAcceptance>()},
                          models.generation->eos_ids));
  }

  int64_t vocabulary() const { return drafter_->transformer()->config().vocabulary; }

  data::RouterRows decode(const data::Corpus& inputs, int64_t begin, int64_t end) {
    std::vector<std::vector<int64_t>> sources;
    for (int64_t i = begin; i < end; ++i) {
      const std::span<const int32_t> source = source_of(inputs, i);
      sources.emplace_back(source.begin(), source.end());
    }
    infer::throw_if_failed(generator_->generate(sources, static_cast<uint64_t>(begin), [](size_t, const auto&) {
      throw_if_stop_requested("whole shards are saved; run it again to continue");
    }));
    return collector_.drain();
  }

 private:
  // Plain text is its own prompt: its first tokens. An empty prompt would give the same output every time.
  std::span<const int32_t> source_of(const data::Corpus& inputs, int64_t example) const {
    const auto source = inputs.source(example);
    if (!source.empty() || target_->info().encoder_decoder) return source;
    const auto text = inputs.target(example);
    return text.first(std::min(static_cast<size_t>(prompt_tokens_), text.size() - std::min<size_t>(1, text.size())));
  }

  static infer::DecodeOptions decode_options(const RouterDataOptions& options) {
    infer::DecodeOptions decode;
    decode.method = "speculative";
    decode.temperature = options.temperature;
    decode.top_k = 0;
    decode.top_p = 1;
    decode.min_p = 0;
    decode.seed = options.seed;
    decode.max_new_tokens = options.max_new_tokens;
    decode.batch_size = options.batch_size;
    return decode;
  }

  int64_t prompt_tokens_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<model::TransformerModel> target_;
  infer::SharedDrafter drafter_;
  infer::RouterCollector collector_;
  std::optional<infer::Generator> generator_;
};

fs::path shard_file(const StageContext& run, int64_t index) {
  return run.directory / fmt::format("router_data.shard-{:05}.h5", index);
}

// Returns whether this job made the file. Files of other jobs or versions are made again.
bool is_of_job(const fs::path& file, const StageContext& run) {
  if (!fs::exists(file)) return false;
  const data::RouterDataInfo info = data::read_router_data_info(file);
  const auto job = info.provenance.find(data::kJob);
  return job != info.provenance.end() && job->second == run.identity;
}

data::RouterDataInfo data_info(const RouterDataOptions& options, const StageContext& run, int64_t vocabulary) {
  data::RouterDataInfo info;
  info.top_k = options.top_k;
  info.vocabulary = vocabulary;
  info.drafter_hash = model::model_hash(options.drafter);
  info.provenance = {{data::kJob, run.identity},
                     {"target", input_name(run, "model", options.model)},
                     {"drafter", input_name(run, "drafter", options.drafter)},
                     {"corpus", input_name(run, "corpus", options.corpus)},
                     {"window", fmt::format("{}", options.window)},
                     {"temperature", fmt::format("{}", options.temperature)},
                     {"seed", fmt::format("{}", options.seed)},
                     {"dtype", options.dtype}};
  return info;
}

// Decodes the sources of missing shards and joins all shards.
void collect(const RouterDataOptions& options, const StageContext& run, const fs::path& file) {
  const data::Corpus inputs(options.corpus);
  const int64_t count = options.limit > 0 ? std::min(options.limit, inputs.size()) : inputs.size();
  Collection collection(options, run, inputs.info());
  data::RouterDataInfo info = data_info(options, run, collection.vocabulary());
  info.examples = count;
  std::vector<fs::path> shards;
  Progress progress({.style = run.execution.progress, .title = "router data", .unit = "sources", .total = count});
  for (int64_t begin = 0; begin < count; begin += options.shard_examples) {
    throw_if_stop_requested(fmt::format("{} of {} sources are saved; run it again to continue", begin, count));
    const int64_t end = std::min(count, begin + options.shard_examples);
    shards.push_back(shard_file(run, static_cast<int64_t>(shards.size())));
    if (!is_of_job(shards.back(), run)) {
      data::write_router_data(shards.back(), info, collection.decode(inputs, begin, end));
    }
    progress.advance(end - begin);
  }
  progress.finish();
  data::merge_router_data(shards, file, info);
}

// If a run was killed after it had joined its shards, only removes them.
void run_router_data(const RouterDataOptions& options, const StageContext& run) {
  const fs::path file = run.directory / "router_data.h5";
  if (!is_of_job(file, run)) collect(options, run, file);
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(run.directory)) {
    if (entry.path().filename().string().starts_with("router_data.shard-")) shards.push_back(entry.path());
  }
  for (const fs::path& shard : shards) fs::remove(shard);
  log_info("  {}", data::describe_router_data(data::RouterData(file)));
}

}  // namespace

StageKind router_data_stage() {
  return make_stage_kind<RouterDataOptions>("router-data", 2, "decodes a corpus and collects training data of a router",
                                            run_router_data);
}

}  // namespace draftsmith::recipes
