// Times of a target and of drafters cut out of it: of steps in rounds, as `draftsmith plan` measures them, and
// training.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/timing.h"
#include "base/util.h"
#include "infer/costs/step_costs.h"
#include "model/files/checkpoint.h"
#include "model/pruning/pruning.h"
#include "model/transformer/parameters.h"
#include "recipes/starter/starter.h"
#include "train/objectives/objective.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::recipes {

namespace {

// Returns a context in the middle of a typical output.
infer::CalibrationContext usual_context(const Starter& starter, int64_t rows) {
  const int64_t most = starter.config.max_positions;
  const int64_t length = most == 0 ? 64 : std::clamp<int64_t>(most - kLongestWindow - 1, 1, 64);
  return infer::random_context(starter.loaded.model->info(), {.rows = rows, .source = 32, .length = length});
}

// Returns the median seconds of a token in each of `rows` rows.
double step_seconds(const Starter& starter, int64_t rows) {
  infer::TimedModel timed(*starter.loaded.model, usual_context(starter, rows), kLongestWindow);
  std::vector<double> seconds;
  for (int64_t i = 0; i < kLongestWindow; ++i) seconds.push_back(timed.run(1, model::Logits::kLast));
  return median(seconds);
}

// Returns a list of `kept` layers of `all`, evenly from the first to the last.
std::string spread_layers(int64_t kept, int64_t all) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < kept; ++i) layers.push_back(kept == 1 ? 0 : i * (all - 1) / (kept - 1));
  return fmt::format("{}", fmt::join(layers, ","));
}

// Returns the seconds of passes forward and back on one example of random ids, in fp32.
double example_seconds(model::TransformerModel& drafter, const Starter& starter) {
  constexpr int64_t kRows = 8;
  const auto ids = infer::random_sources(2 * kRows, starter.max_new_tokens, starter.config.vocabulary);
  const std::vector<std::vector<int32_t>> tokens = [&] {
    std::vector<std::vector<int32_t>> all;
    for (const auto& row : ids) all.emplace_back(row.begin(), row.end());
    return all;
  }();
  std::vector<train::ExampleTokens> examples;
  for (size_t row = 0; row < tokens.size(); row += 2) {
    const size_t prompt = (tokens[row].size() + 1) / 2;  // shorter than its answer
    examples.push_back({std::span(tokens[row]).first(prompt), tokens[row + 1]});
  }
  train::PlainTrainable trainable(drafter);
  train::require_gradients(trainable, true);
  const auto objective = train::make_objective({});
  std::vector<double> seconds;
  for (int step = 0; step < 3; ++step) {
    const Stopwatch watch;
    const train::Batch batch = train::make_batch(examples, trainable.info());
    objective->loss(trainable, batch, {}).sum.backward();
    synchronize(trainable.info().device);
    seconds.push_back(watch.seconds());
  }
  return median(seconds) / kRows;
}

// Cuts the candidate out of the whole model and measures it.
void measure_candidate(Candidate& candidate, const model::TransformerModel& whole, const Starter& starter,
                       const StarterOptions& options, at::Device device) {
  const auto drafter =
      model::prune(whole, {.encoder_layers = candidate.encoder_layers, .decoder_layers = candidate.decoder_layers});
  candidate.numbers = model::count_numbers(drafter->config());
  const TemporaryDirectory folder;
  model::save_model(folder / "model", *drafter);
  const auto packed =
      model::load_model(folder / "model", {.device = device, .dtype = parse_weight_type(options.dtype)});
  candidate.costs =
      infer::measure_step_costs(*starter.loaded.model, *packed, usual_context(starter, 1), kLongestWindow + 1);
  drafter->to(device, at::kFloat);
  candidate.example_seconds = example_seconds(*drafter, starter);
}

}  // namespace

void measure(Starter& starter, const StarterOptions& options, at::Device device) {
  const model::TransformerConfig& config = starter.config;
  std::set<int64_t> depths = {1, 2, 4, config.decoder_layers / 4};
  if (options.layers > 0) depths = {options.layers};
  for (const int64_t layers : depths) {
    if (layers < 1 || layers >= config.decoder_layers) continue;
    // Not measured: more layers agree more often.
    const double alpha = std::min(0.8, 0.5 + 0.1 * std::log2(static_cast<double>(layers)));
    starter.candidates.push_back(
        {.layers = layers, .decoder_layers = spread_layers(layers, config.decoder_layers), .alpha = alpha});
    if (!config.encoder_decoder) continue;
    starter.candidates.back().encoder_layers = spread_layers((config.encoder_layers + 1) / 2, config.encoder_layers);
  }
  if (starter.candidates.empty()) {
    throw UserError({.where = options.layers > 0 ? "--layers" : options.target.string(),
                     .what = "a drafter has fewer decoder layers than its target",
                     .expected = fmt::format("fewer than {}, and at least 1", config.decoder_layers),
                     .found = std::to_string(std::max<int64_t>(1, options.layers))});
  }
  starter.step = step_seconds(starter, 1);
  starter.batch_step = step_seconds(starter, kBatch);
  const auto whole = model::load_model(options.target, {.pack = false});
  for (Candidate& candidate : starter.candidates) measure_candidate(candidate, *whole, starter, options, device);
}

}  // namespace draftsmith::recipes
