// Times of a target and of drafters cut out of it, measured here: steps in rounds as `draftsmith plan` measures them,
// and steps of training on random tokens.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/timing.h"
#include "base/util.h"
#include "data/corpus/corpus.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/pruning/pruning.h"
#include "model/transformer/parameters.h"
#include "recipes/starter/starter.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/trainable/trainable_model.h"
#include "train/training_step.h"

namespace draftsmith::recipes {

namespace {

constexpr int64_t kLongestWindow = 8;
constexpr int64_t kFewIds = 8192;     // of a pruned vocabulary
constexpr int64_t kTrainedSteps = 3;  // that are timed
constexpr double kAlphaOfOne = 0.5;   // assumed of one layer; each doubling of the layers adds kAlphaOfMore
constexpr double kAlphaOfMore = 0.1;
constexpr double kHighestAlpha = 0.8;

// Returns a context in the middle of a typical output that leaves room for the longest window.
infer::CalibrationContext usual_context(const Target& target, int64_t rows) {
  const model::ModelInfo& info = target.loaded.model->info();
  const int64_t room = info.max_positions == 0 ? 64 : std::max<int64_t>(1, info.max_positions / 2 - kLongestWindow);
  return infer::random_context(info, {.rows = rows, .source = 32, .length = std::min<int64_t>(64, room)});
}

// Returns the median seconds of a token in each of `rows` rows.
double step_seconds(const Target& target, int64_t rows) {
  constexpr int64_t kSteps = 5;
  infer::TimedModel timed(*target.loaded.model, usual_context(target, rows), kSteps);
  std::vector<double> seconds;
  for (int64_t i = 0; i < kSteps; ++i) seconds.push_back(timed.run(1, model::Logits::kLast));
  return median(seconds);
}

// Returns a list of `kept` layers of `all`, the first and the last and others evenly between them; of one the first.
std::string spread_layers(int64_t kept, int64_t all) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < kept; ++i) layers.push_back(kept == 1 ? 0 : i * (all - 1) / (kept - 1));
  return fmt::format("{}", fmt::join(layers, ","));
}

// Writes prompts and answers of random ids, of usual lengths, enough for one micro-batch.
int64_t write_examples(const std::filesystem::path& file, const Target& target, int64_t token_budget) {
  data::CorpusWriter writer(
      file, {.tokenizer_hash = target.loaded.tokenizer->hash(), .vocabulary = target.config.vocabulary});
  const int64_t source = std::max<int64_t>(1, std::min<int64_t>(48, target.prompt_tokens));
  const int64_t width =
      target.config.encoder_decoder ? std::max(source, target.max_new_tokens) : source + target.max_new_tokens;
  const int64_t rows = std::max<int64_t>(1, token_budget / width);
  const auto ids = infer::random_sources(2 * rows, std::max(source, target.max_new_tokens), target.config.vocabulary);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const std::vector<int32_t> all(ids[2 * row].begin(), ids[2 * row].end());
    const std::vector<int32_t> answer(ids[2 * row + 1].begin(), ids[2 * row + 1].end());
    writer.add(std::span(all).first(static_cast<size_t>(source)),
               std::span(answer).first(static_cast<size_t>(target.max_new_tokens)));
  }
  writer.finish();
  return rows;
}

// Returns the seconds of training on one example, as stages of kind "train" do it.
double example_seconds(model::TransformerModel& drafter, const Target& target) {
  const TemporaryDirectory folder;
  const int64_t rows = write_examples(folder / "corpus.h5", target, training_defaults(target.config).token_budget);
  const data::Corpus corpus(folder / "corpus.h5");
  train::PlainTrainable trainable(drafter);
  train::require_gradients(trainable, true);
  const auto objective = train::make_objective({}, {.trainable = &trainable, .corpus = &corpus});
  const auto optimizer = train::make_optimizer(trainable.parameters(), {});
  train::MicroBatches batch(1);
  for (int64_t row = 0; row < rows; ++row) batch.front().push_back(row);
  const train::StepSettings settings{.autocast = train::trains_in_bf16("auto", trainable.info().device)};
  std::vector<double> seconds;
  for (int64_t step = 0; step < kTrainedSteps; ++step) {
    const Stopwatch watch;
    optimizer->zero_grad();
    const auto result = train::accumulate_gradients(trainable, *objective, corpus, batch, settings);
    optimizer->step(0, train::gradient_scale(result, 1));
    synchronize(trainable.info().device);
    seconds.push_back(watch.seconds());
  }
  return median(seconds) / static_cast<double>(rows);
}

double assumed_alpha(int64_t layers) {
  return std::min(kHighestAlpha, kAlphaOfOne + kAlphaOfMore * std::log2(static_cast<double>(layers)));
}

// Returns tokens for pruning to count: which ids stay changes no time.
model::PruneEvidence any_tokens(const model::TransformerConfig& config) {
  return {.token_counts = std::vector<int64_t>(static_cast<size_t>(config.vocabulary), 1)};
}

// Cuts the candidate out of the whole model and measures it.
void measure(Candidate& candidate, const model::TransformerModel& whole, const Target& target,
             const StarterOptions& options, at::Device device) {
  model::PruneOptions prune{.encoder_layers = candidate.encoder_layers, .decoder_layers = candidate.decoder_layers};
  if (candidate.vocabulary > 0) prune.vocabulary_size = candidate.vocabulary;
  const auto drafter =
      model::prune(whole, prune, candidate.vocabulary > 0 ? any_tokens(target.config) : model::PruneEvidence{});
  candidate.numbers = model::count_numbers(drafter->config());
  const TemporaryDirectory folder;
  model::save_model(folder / "model", *drafter);
  {
    const auto packed =
        model::load_model(folder / "model", {.device = device, .dtype = parse_weight_type(options.dtype)});
    candidate.costs =
        infer::measure_step_costs(*target.loaded.model, *packed, usual_context(target, 1), kLongestWindow + 1);
  }
  drafter->to(device, at::kFloat);
  candidate.example_seconds = example_seconds(*drafter, target);
}

std::vector<Candidate> candidates_of(const model::TransformerConfig& config, const StarterOptions& options) {
  std::set<int64_t> depths = {1, 2, 4, config.decoder_layers / 4};
  if (options.layers) depths = {*options.layers};
  std::vector<Candidate> candidates;
  for (const int64_t layers : depths) {
    if (layers < 1 || layers >= config.decoder_layers) continue;
    for (const int64_t vocabulary : {int64_t{0}, kFewIds}) {
      if (vocabulary > 0 && config.vocabulary < 2 * vocabulary) continue;
      candidates.push_back({.decoder_layers = spread_layers(layers, config.decoder_layers),
                            .layers = layers,
                            .vocabulary = vocabulary,
                            .alpha = assumed_alpha(layers)});
      if (config.encoder_decoder) {
        candidates.back().encoder_layers = spread_layers((config.encoder_layers + 1) / 2, config.encoder_layers);
      }
    }
  }
  if (!candidates.empty()) return candidates;
  throw UserError({.where = options.layers ? "--layers" : options.target.string(),
                   .what = "a drafter has fewer decoder layers than its target",
                   .expected = config.decoder_layers > 1 ? fmt::format("1 to {}", config.decoder_layers - 1)
                                                         : "a target of several decoder layers",
                   .found = fmt::format("{} of {}", options.layers.value_or(1), config.decoder_layers)});
}

}  // namespace

double Candidate::speedup(double at) const {
  return evaluate::best_window(at, costs, kLongestWindow).speedup;
}

int64_t Candidate::window(double at) const {
  return evaluate::best_window(at, costs, kLongestWindow).window;
}

Measured measure_candidates(const Target& target, const StarterOptions& options, at::Device device) {
  Measured measured{.candidates = candidates_of(target.config, options)};
  measured.target = {.step = step_seconds(target, 1), .batch_step = step_seconds(target, kBatch)};
  const auto whole = model::load_model(options.target, {.pack = false});
  for (Candidate& candidate : measured.candidates) measure(candidate, *whole, target, options, device);
  return measured;
}

}  // namespace draftsmith::recipes
