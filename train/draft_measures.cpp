#include "train/draft_measures.h"

#include "infer/drafters/model_drafter.h"
#include "infer/drafters/shared_encoder_drafter.h"
#include "infer/drafters/tandem_loading.h"
#include "infer/forced/alpha_sums.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/sampling/warping.h"

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

}  // namespace

DraftMeasures measure_drafts(const TrainableModel& trained, const DraftTask& task, const ValidationOptions& options) {
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
  const auto results = generator.generate(task.sources, 0, [&](size_t, const auto&) { task.stop_if_asked(); });
  infer::throw_if_failed(results);

  std::vector<std::vector<int64_t>> sources, outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    sources.push_back(task.sources[i]);
    outputs.push_back(results[i].ids);
  }
  const infer::ForcedAlpha forced = models.drafter->forced_alpha(
      models.draft_target(), {sources, outputs}, {.temperature = options.draft_temperature}, writers.block);
  const infer::DecodeStats stats = infer::total(results);
  return {.alpha = stats.alpha(),
          .tokens_per_target_run = stats.tokens_per_target_run(),
          .alpha_forced = forced.alpha,
          .agreement = forced.agreement};
}

}  // namespace draftsmith::train
