// kind = "router-data": decodes a corpus's sources with a target and a drafter and collects training data of a router
// (infer/router_collection.h). Makes router_data.h5; goes on with the missing shards.
#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "data/corpus/corpus.h"
#include "data/router/sharded_router_data.h"
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
#include "recipes/stages/dealt_shards.h"
#include "recipes/stages/decoded_sources.h"
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
           "Directory of the router's drafter: a model (also one that shares the target's encoder), or a Tandem "
           "secondary of "
           "the target.")
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
      .add(
          "shard_examples", &R::shard_examples, Range{1}, Unit{"examples"}, NoResult{},
          "Number of sources whose positions are written at once; a killed run loses at most these. Sources of a shard "
          "are decoded together, so in bf16 and fp16 another number may change a token where two are almost equally "
          "likely.");
}

// Target and drafter, and a generator whose decoding is observed.
class Collection {
 public:
  Collection(const RouterDataOptions& options, const StageContext& run, const data::Corpus& inputs)
      : tokenizer_(load_model_tokenizer(options.model, inputs.info().tokenizer_hash)), collector_(options.top_k) {
    const infer::DrafterSpec spec = infer::parse_router_drafter(options.drafter, "drafter");
    const model::LoadOptions load{.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)};
    target_ = model::load_model(options.model, load);
    sources_.emplace(inputs, target_->info(), tokenizer_.get(), options.prompt_tokens);
    drafter_ = infer::load_drafter(spec, options.model, load);
    infer::router_embeddings(drafter_.get(), "drafter", options.drafter.string());  // reports drafters that have none
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

  int64_t vocabulary() const { return drafter_->model()->info().vocabulary; }

  data::RouterRows decode(const data::ShardRange& range) {
    infer::throw_if_failed(generator_->generate(
        sources_->of_range(range.first, range.last), static_cast<uint64_t>(range.first),
        [](size_t, const auto&) { throw_if_stop_requested("whole shards are saved; run it again to continue"); }));
    return collector_.drain();
  }

 private:
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

  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<model::TransformerModel> target_;
  std::optional<DecodedSources> sources_;
  infer::SharedDrafter drafter_;
  infer::RouterCollector collector_;
  std::optional<infer::Generator> generator_;
};

data::RouterDataInfo data_info(const RouterDataOptions& options, const StageContext& run, int64_t sources,
                               int64_t vocabulary) {
  data::RouterDataInfo info;
  info.top_k = options.top_k;
  info.context = model::kRouterContext;
  info.vocabulary = vocabulary;
  info.examples = sources;
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

void run_router_data(const RouterDataOptions& options, const StageContext& run) {
  const data::Corpus inputs(options.corpus);
  const int64_t count = options.limit > 0 ? std::min(options.limit, inputs.size()) : inputs.size();
  Collection collection(options, run, inputs);
  const fs::path file = run.directory / "router_data.h5";
  data::ShardedRouterData writer(file, data_info(options, run, count, collection.vocabulary()));
  Progress progress({.style = run.execution.progress,
                     .title = "router data",
                     .unit = "sources",
                     .total = count,
                     .done_before = writer.done()});
  const auto write = [&](const data::ShardRange& range) { writer.add_shard(range, collection.decode(range)); };
  for (const auto& range : deal_out(run, by_size(writer.missing(options.shard_examples)), progress, write)) {
    writer.adopt(range);
  }
  progress.finish();
  if (!run.execution.world->leads()) return;
  writer.finish();
  log_info("  {}", data::describe_router_data(data::RouterData(file)));
}

}  // namespace

StageKind router_data_stage() {
  return run_by_all(make_stage_kind<RouterDataOptions>(
      "router-data", 1, "decodes a corpus and collects training data of a router", run_router_data));
}

}  // namespace draftsmith::recipes
