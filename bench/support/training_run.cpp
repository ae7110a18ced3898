#include "bench/support/training_run.h"

#include <algorithm>
#include <numeric>

#include "base/device.h"
#include "base/random.h"
#include "base/timing.h"

namespace draftsmith::bench {

namespace {

void write_random_corpus(const std::filesystem::path& file, const model::TransformerConfig& config,
                         const TrainingRunOptions& options) {
  data::CorpusInfo info;
  info.tokenizer_hash = "none";
  info.vocabulary = config.vocabulary;
  if (!config.encoder_decoder) info.provenance = {{"prompts", "true"}};
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(1, "bench")};
  const auto row = [&](int64_t length) {
    std::vector<int32_t> ids;
    const auto bound = static_cast<uint64_t>(config.vocabulary - 3);
    for (int64_t t = 0; t < length; ++t) ids.push_back(static_cast<int32_t>(3 + random.below(bound)));
    return ids;
  };
  const TrainingSize& size = options.size;
  for (int64_t i = 0; i < size.rows * options.batches; ++i) writer.add(row(size.source), row(size.target));
  writer.finish();
}

}  // namespace

TrainingRun::TrainingRun(model::TransformerModel& model, const TrainingRunOptions& options)
    : options_(options),
      device_(model.info().device),
      trainable_(model),
      objective_(train::make_objective({})),
      optimizer_(train::make_optimizer(model.parameters(), {})) {
  write_random_corpus(folder_ / "corpus.h5", model.config(), options);
  corpus_.emplace(folder_ / "corpus.h5");
}

double TrainingRun::step() {
  std::vector<int64_t> rows(static_cast<size_t>(options_.size.rows));
  std::iota(rows.begin(), rows.end(), static_cast<int64_t>(steps_) % options_.batches * options_.size.rows);
  const train::StepResult result = train::accumulate_gradients(trainable_, *objective_, *corpus_, {rows},
                                                               {.dropout = options_.dropout,
                                                                .first_micro_step = steps_++,
                                                                .autocast = options_.autocast,
                                                                .recompute = options_.recompute});
  if (result.nonfinite) throw RunError(*result.nonfinite);
  const double share =
      options_.warmup == 0 ? 1 : std::min(1.0, static_cast<double>(steps_) / static_cast<double>(options_.warmup));
  optimizer_->step(1e-4 * share, train::gradient_scale(result, 1.0));
  optimizer_->zero_grad();
  return result.loss_sum / static_cast<double>(result.labels);
}

double TrainingRun::timed_step() {
  synchronize(device_);
  const Stopwatch watch;
  step();
  synchronize(device_);
  return watch.seconds();
}

}  // namespace draftsmith::bench
