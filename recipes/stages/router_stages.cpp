// The stages of routers: kind = "router-data" decodes a corpus's sources with a target and a drafter and collects what
// a router learns from (infer/routers.h), router_data.h5; kind = "router" trains one (train/router/router_training.h),
// router/ and router_report.json. Both start from the beginning after an interruption, since they take minutes at most.
#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "base/json.h"
#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "data/router/router_data.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/drafter.h"
#include "infer/generator.h"
#include "infer/routers.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/models/router.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"
#include "train/router/router_training.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

struct RouterDataOptions : DecodingOptions {
  RouterDataOptions() {
    limit = 2000;
    batch_size = 16;
  }
  fs::path drafter;
  int64_t top_k = 8;
  int64_t window = 16;
  static Fields<RouterDataOptions> fields();
};

Fields<RouterDataOptions> RouterDataOptions::fields() {
  using R = RouterDataOptions;
  return Fields<R>("router data stage (kind = \"router-data\"): makes router_data.h5")
      .inherit<DecodingOptions>()
      .add("drafter", &R::drafter, Required{},
           "Directory of the router's drafter: a model (also one that shares the target's encoder), a Tandem "
           "secondary or a features drafter of the target.")
      .add("top_k", &R::top_k, Range{1, static_cast<double>(model::kMostRouterTokens)}, Unit{"tokens"},
           "Number of most likely tokens of the drafter to keep for each position; a router may read fewer. The "
           "collected distributions are at temperature 1 in any case.")
      .add("window", &R::window, Range{1, static_cast<double>(model::kMostRouterDraft)}, Unit{"tokens"},
           "Fixed draft window, as long as the router's longest draft.");
}

data::RouterDataInfo data_info(const RouterDataOptions& options, const StageContext& run, int64_t sources,
                               int64_t vocabulary) {
  data::RouterDataInfo info;
  info.top_k = options.top_k;
  info.vocabulary = vocabulary;
  info.examples = sources;
  info.drafter_hash = model::model_hash(options.drafter);
  info.provenance = options.provenance();
  info.provenance.merge(std::map<std::string, std::string>{{"target", input_name(run, "model", options.model)},
                                                           {"drafter", input_name(run, "drafter", options.drafter)},
                                                           {"corpus", input_name(run, "corpus", options.corpus)},
                                                           {"window", fmt::format("{}", options.window)}});
  return info;
}

// Decodes the first `count` sources, 256 together.
void decode_observed(infer::Generator& generator, const DecodedSources& sources, int64_t count, Progress& progress) {
  constexpr int64_t kTogether = 256;
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t last = std::min(first + kTogether, count);
    infer::throw_if_failed(generator.generate(sources.of_range(first, last), static_cast<uint64_t>(first)));
    progress.advance(last - first);
  }
}

void run_router_data(const RouterDataOptions& options, const StageContext& run) {
  const data::Corpus inputs(options.corpus);
  options.require_prompts(inputs);
  const int64_t count = options.count(inputs);
  const auto tokenizer = load_model_tokenizer(options.model, inputs.info().tokenizer_hash, options);
  options.require_languages(inputs, tokenizer.get());
  const infer::DrafterSpec spec = infer::parse_router_drafter(options.drafter, "drafter");
  const model::LoadOptions load{.device = choose_device(run.execution.device), .dtype = parse_dtype(options.dtype)};
  const auto target = model::load_model(options.model, load);
  const DecodedSources sources(inputs, target->info(), tokenizer.get(), options.prompt_tokens);
  infer::GenerationModels models;
  models.target = target.get();
  models.drafter = infer::load_drafter(spec, options.model, load);
  models.generation = options.settings(tokenizer.get());
  models.target_tokenizer = tokenizer.get();
  infer::router_embeddings(models.drafter.get(), target.get(), "drafter", options.drafter.string());  // reports others
  Problems problems;
  models.drafter->check(models.draft_target(), problems);
  problems.throw_if_any();
  infer::RouterCollector collector(options.top_k);
  infer::Generator generator(models, options.decoding("speculative"),
                             collector.watched(models.drafter->make(models.draft_target()), options.window));
  sources.require_fit(generator, count);
  Progress progress({.title = "router data", .unit = "sources", .total = count},
                    "run the recipe again to collect from the beginning");
  decode_observed(generator, sources, count, progress);
  progress.finish();
  const fs::path file = run.directory / "router_data.h5";
  data::write_router_data(file, data_info(options, run, count, models.drafter->model()->info().vocabulary),
                          collector.drain());
  log_info("  {}", data::describe_router_data(data::RouterData(file)));
}

struct RouterStageOptions : train::RouterTrainingOptions {
  fs::path data;
  fs::path drafter;

  static Fields<RouterStageOptions> fields() {
    return Fields<RouterStageOptions>("router stage (kind = \"router\"): makes router/")
        .add("data", &RouterStageOptions::data, Required{}, "Positions that a stage of kind router-data collected.")
        .add("drafter", &RouterStageOptions::drafter, Required{},
             "Directory of the drafter that collected them, whose embeddings the router reads; a features drafter's "
             "are those of its target, which its config.json names.")
        .inherit<train::RouterTrainingOptions>();
  }
};

void run_router(const RouterStageOptions& options, const StageContext& run) {
  const infer::DrafterSpec spec = infer::parse_router_drafter(options.drafter, "drafter");
  fs::remove_all(run.directory / "router");  // of a killed run
  const data::RouterData data(options.data);
  const bool features = spec.kind == infer::DrafterKind::kFeatures;
  const fs::path read = features ? model::companion_directory(model::features_kind(), options.drafter) : fs::path();
  const infer::SharedDrafter drafter = infer::load_drafter(spec, read, {});
  const auto target = features ? model::load_model(read, {.pack = false}) : nullptr;
  const std::string name = input_name(run, "drafter", options.drafter);
  Progress progress({.title = "training the router", .unit = "epochs", .total = options.epochs},
                    "run the recipe again to train the router from the beginning");
  const train::TrainedRouter trained =
      train::train_router(data,
                          {infer::router_embeddings(drafter.get(), target.get(), "drafter", name), name,
                           model::model_hash(options.drafter)},
                          options, [&](int64_t, double cross_entropy) {
                            progress.set_note(fmt::format("cross entropy {:.4f}", cross_entropy));
                            progress.advance();
                          });
  progress.finish();
  model::save_router(run.directory / "router", trained.router);
  const fs::path report = run.directory / "router_report.json";
  write_json(report, trained.report);
  log_info("{}", train::router_report_text(load_json(report), report.string()));
}

}  // namespace

std::vector<StageKind> router_stages() {
  return {make_stage_kind<RouterDataOptions>("router-data", 1, run_router_data),
          make_stage_kind<RouterStageOptions>("router", 1, run_router)};
}

}  // namespace draftsmith::recipes
