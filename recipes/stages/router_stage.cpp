// kind = "router": trains a router on collected positions (train/router/router_training.h). Makes router/,
// router_report.json and router_report.svg.
#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/signals.h"
#include "infer/router_loading.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "recipes/stages/stages.h"
#include "train/router/router_training.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

struct RouterStageOptions : train::RouterTrainingOptions {
  fs::path data;
  fs::path drafter;

  static Fields<RouterStageOptions> fields() {
    return Fields<RouterStageOptions>("router stage (kind = \"router\"): makes router/")
        .add("data", &RouterStageOptions::data, Required{}, "Positions that a stage of kind router-data collected.")
        .add("drafter", &RouterStageOptions::drafter, Required{},
             "Directory of the drafter that collected them, whose embeddings the router reads.")
        .inherit<train::RouterTrainingOptions>();
  }
};

// Starts from the beginning after an interruption, since training takes minutes at most; removes files of a killed run.
void run_router(const RouterStageOptions& options, const StageContext& run) {
  const infer::DrafterSpec spec = infer::parse_router_drafter(options.drafter, "drafter");
  fs::remove_all(run.directory / "router");
  const data::RouterData data(options.data);
  const infer::SharedDrafter drafter = infer::load_drafter(spec, {}, {});
  const std::string name =
      run.options.contains("drafter") ? run.options.at("drafter").get<std::string>() : options.drafter.string();
  Progress progress(
      {.style = run.execution.progress(), .title = "training the router", .unit = "epochs", .total = options.epochs});
  const train::TrainedRouter trained = train::train_router(
      data, {infer::router_embeddings(drafter.get(), "drafter", name), name, model::model_hash(options.drafter)},
      options, [&](int64_t, double cross_entropy) {
        progress.set_note(fmt::format("cross entropy {:.4f}", cross_entropy));
        progress.advance();
        throw_if_stop_requested("run the recipe again to train the router from the beginning");
      });
  progress.finish();
  model::save_router(run.directory / "router", trained.router);
  write_json(run.directory / "router_report.json", train::to_json(trained.report));
  write_file_atomic(run.directory / "router_report.svg", train::reliability_svg(trained.report));
  log_info("{}", train::report_text(trained.report));
}

}  // namespace

StageKind router_stage() {
  return make_stage_kind<RouterStageOptions>("router", 1, "trains a router, which decides when a draft ends",
                                             run_router);
}

}  // namespace draftsmith::recipes
