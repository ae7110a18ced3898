#include "train/draft_measures.h"

#include <cmath>

#include "base/json.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::train {

namespace {

constexpr int64_t kDraftedRows = 32;

infer::SharedDrafter drafter_of(const TextWriters& writers, const data::Tokenizer* tokenizer) {
  if (writers.tandem) return infer::tandem_drafter(writers.tandem, tokenizer);
  if (writers.shared_encoder) return infer::shared_encoder_drafter(writers.shared_encoder, tokenizer);
  return infer::as_drafter(*writers.target, tokenizer);
}

infer::DecodeOptions speculative_decoding(const ValidationOptions& options, bool tandem) {
  infer::DecodeOptions decoding;
  decoding.method = tandem ? "tandem-speed" : "speculative";
  decoding.window = options.draft_window;
  decoding.temperature = options.draft_temperature;
  decoding.top_k = 0;
  decoding.top_p = 1;
  decoding.measure_alpha = true;
  decoding.batch_size = kDraftedRows;
  decoding.max_new_tokens = options.max_new_tokens;
  return decoding;
}

double ratio(double sum, int64_t count) {
  return sum / static_cast<double>(count);
}

}  // namespace

void DraftSums::add(const nlohmann::json& part) {
  overlap += exact_number(part.at("overlap"));
  examined += part.at("examined").get<int64_t>();
  emitted += part.at("emitted").get<int64_t>();
  target_runs += part.at("target_runs").get<int64_t>();
  forced_overlap += exact_number(part.at("forced_overlap"));
  same += part.at("same").get<int64_t>();
  positions += part.at("positions").get<int64_t>();
}

DraftMeasures DraftSums::means() const {
  return {.alpha = ratio(overlap, examined),
          .tokens_per_target_run = ratio(static_cast<double>(emitted), target_runs),
          .alpha_forced = positions == 0 ? 0 : ratio(forced_overlap, positions),
          .agreement = positions == 0 ? 0 : ratio(static_cast<double>(same), positions)};
}

nlohmann::json to_json(const DraftSums& sums) {
  return {{"overlap", exact_text(sums.overlap)},
          {"examined", sums.examined},
          {"emitted", sums.emitted},
          {"target_runs", sums.target_runs},
          {"forced_overlap", exact_text(sums.forced_overlap)},
          {"same", sums.same},
          {"positions", sums.positions}};
}

DraftSums measure_drafts(const TrainableModel& trained, const DraftTask& task, const ValidationOptions& options) {
  if (task.sources.empty()) return {};  // fewer sources than processes
  const TextWriters writers = trained.text_writers();
  infer::GenerationModels models;
  model::TransformerModel& target = writers.drafts_for_target() ? *writers.target : *task.target;
  models.target = &target;
  models.drafter = drafter_of(writers, task.tokenizer);
  models.generation = model::default_generation_config(target.config());
  models.target_tokenizer = task.tokenizer;
  const model::StatesFreed freed(target);  // training needs the memory
  const model::StatesFreed drafter_freed(*models.drafter->model());
  infer::Generator generator(models, speculative_decoding(options, writers.tandem != nullptr));
  const auto results = generator.generate(task.sources, static_cast<uint64_t>(task.first_source),
                                          [&](size_t, const auto&) { task.stop_if_asked(); });
  infer::throw_if_failed(results);

  std::vector<std::vector<int64_t>> outputs;
  for (const infer::GenerationResult& result : results) outputs.push_back(result.ids);
  const infer::ForcedAlpha forced = models.drafter->forced_alpha(
      models.draft_target(), {task.sources, outputs}, {.temperature = options.draft_temperature}, writers.block);
  const infer::DecodeStats stats = infer::total(results);
  const auto positions = static_cast<double>(forced.positions);
  return {.overlap = stats.overlap_sum,
          .examined = stats.overlap_count,
          .emitted = stats.emitted,
          .target_runs = stats.target_runs,
          .forced_overlap = forced.alpha * positions,
          .same = std::llround(forced.agreement * positions),
          .positions = forced.positions};
}

}  // namespace draftsmith::train
