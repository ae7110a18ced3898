#include "bench/support/decoding_measures.h"

#include <algorithm>
#include <numeric>

#include "base/device.h"
#include "base/device_kernels.h"
#include "base/timing.h"
#include "base/util.h"
#include "bench/support/coin_acceptance.h"
#include "bench/support/device_counts.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/costs/step_work.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "infer/parts.h"

namespace draftsmith::bench {

namespace {

using infer::DecodeStats;
using infer::Generator;
using infer::random_sources;
using infer::TimedModel;
using Json = nlohmann::ordered_json;
using Sources = std::vector<std::vector<int64_t>>;

constexpr double kMilli = 1e3;

infer::DecodeOptions options_of(const std::string& method, int64_t rows, int64_t new_tokens, int64_t window = 0) {
  infer::DecodeOptions options;
  options.method = method;
  options.temperature = 0;
  options.batch_size = rows;
  options.max_new_tokens = new_tokens;
  if (window == 0) return options;
  options.window = window;
  options.acceptance = "exact";
  return options;
}

Generator greedy_generator(const NamedModel& named, int64_t rows, int64_t new_tokens) {
  infer::GenerationModels models;
  models.target = &named.model;
  return {models, options_of("greedy", rows, new_tokens)};
}

DecodeStats decode(Generator& generator, const Sources& sources, uint64_t first_line = 0) {
  const auto results = generator.generate(sources, first_line);
  infer::throw_if_failed(results);
  return infer::total(results);
}

// Decoding whose drafts are kept at a known rate, by other coins in each run.
class CoinDecoding {
 public:
  CoinDecoding(const NamedModel& target, const NamedModel& drafter, const infer::DecodeOptions& options, double alpha)
      : options_(options) {
    const int64_t numbers = *options.max_new_tokens + *options.window + 1;
    coins_ = at::zeros({options.lines_together(), numbers, 3},
                       at::TensorOptions(target.model.info().device).dtype(at::kDouble));
    infer::GenerationModels models;
    models.target = &target.model;
    models.drafter = infer::as_drafter(drafter.model);
    auto parts = infer::make_parts(
        options, std::make_unique<infer::ModelDrafter>(drafter.model, target.model.info().vocabulary));
    parts.acceptance = std::make_unique<CoinAcceptance>(std::move(parts.acceptance), alpha, coins_);
    generator_.emplace(models, options, std::move(parts));
  }

  DecodeStats run(const Sources& sources) {
    const uint64_t first_line = next_line_;
    next_line_ += sources.size();
    coins_.copy_(coins_of(first_line));
    return decode(*generator_, sources, first_line);
  }

 private:
  // Returns the numbers that lines have on the host, too.
  at::Tensor coins_of(uint64_t first_line) const {
    at::Tensor coins = at::zeros(coins_.sizes(), at::kDouble);
    auto values = coins.accessor<double, 3>();
    constexpr auto kUse = infer::Draw::kAccept;
    for (int64_t b = 0; b < coins.size(0); ++b) {
      const infer::RowRandom random(options_.seed, first_line + static_cast<uint64_t>(b), 0);
      for (int64_t n = 0; n < coins.size(1); ++n) values[b][n][static_cast<int64_t>(kUse)] = random.uniform(kUse, n);
    }
    return coins;
  }

  infer::DecodeOptions options_;
  at::Tensor coins_;
  std::optional<Generator> generator_;
  uint64_t next_line_ = 0;
};

// Share of examined drafted tokens that were kept.
double kept_share(const DecodeStats& stats) {
  const auto sum = [](const std::vector<int64_t>& counts) {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  };
  return sum(stats.accepted_by_position) / sum(stats.examined_by_position);
}

// A model after a source (encoder-decoder) and as many tokens of output, or after a prompt of that length.
TimedModel timed(const NamedModel& named, const MeasureSettings& settings, int64_t rows, int64_t room) {
  const infer::ContextSize size{.rows = rows, .source = settings.source, .length = settings.source};
  return {named.model, infer::random_context(named.model.info(), size), room};
}

// Median seconds of steps of L tokens a row, after two that warm up.
double step_seconds(TimedModel& timed, int64_t rounds, int64_t tokens) {
  std::vector<double> seconds;
  for (int64_t round = -2; round < rounds; ++round) {
    timed.go_back();
    const double measured = timed.run(tokens);
    if (round >= 0) seconds.push_back(measured);
  }
  return median(seconds);
}

// Requests of `added` more units of work, as the difference of two runs.
Json per_unit(const DeviceCounts& less, const DeviceCounts& more, double added, c10::Device device) {
  const auto share = [&](int64_t DeviceCounts::*count) {
    return Json(static_cast<double>(more.*count - less.*count) / added);
  };
  const bool seen = !device.is_cpu() && more.kernels > 0;
  const auto on_device = [&](int64_t DeviceCounts::*count) { return seen ? share(count) : Json(nullptr); };
  return {{"operators", share(&DeviceCounts::operators)},
          {"kernels", on_device(&DeviceCounts::kernels)},
          {"launches", on_device(&DeviceCounts::launches)},
          {"copies_to_device", on_device(&DeviceCounts::copies_to_device)},
          {"copies_to_host", on_device(&DeviceCounts::copies_to_host)},
          {"waits", on_device(&DeviceCounts::waits)},
          {"graphs", on_device(&DeviceCounts::graphs)}};
}

}  // namespace

DecodingMeasures::DecodingMeasures(MeasureSettings settings, int64_t copy_bytes, Records& records)
    : settings_(std::move(settings)), records_(records), bandwidth_(copy_bandwidth(copy_bytes)) {}

double DecodingMeasures::copy_bandwidth(int64_t bytes) {
  const at::Tensor from = at::ones({bytes}, at::TensorOptions(settings_.device).dtype(at::kByte));
  const at::Tensor to = at::zeros_like(from);
  std::vector<double> times;
  for (int64_t round = -2; round < settings_.rounds; ++round) {
    synchronize(settings_.device);
    const Stopwatch watch;
    to.copy_(from);
    synchronize(settings_.device);
    if (round >= 0) times.push_back(watch.seconds());
  }
  const double seconds = median(times);
  const double bandwidth = 2 * static_cast<double>(bytes) / seconds;
  records_.add("copy", {{"bytes", bytes}, {"ms", kMilli * seconds}, {"gb_per_second", bandwidth / 1e9}});
  return bandwidth;
}

void DecodingMeasures::greedy(const NamedModel& named, int64_t rows) {
  const Sources sources = random_sources(rows, settings_.source, named.model.info().vocabulary);
  Generator generator = greedy_generator(named, rows, settings_.new_tokens);
  std::vector<double> seconds;
  std::vector<double> whole;
  std::vector<DeviceExecution> ran{device_execution()};  // before each round
  for (int64_t round = -1; round < settings_.rounds; ++round) {
    const DecodeStats stats = decode(generator, sources);
    ran.push_back(device_execution());
    if (round < 0) continue;
    seconds.push_back(stats.seconds.decode() / static_cast<double>(settings_.new_tokens));
    whole.push_back(stats.seconds.total());
  }
  const auto [least, most] = std::ranges::minmax(seconds);
  const double step = median(seconds);
  const auto bytes = static_cast<double>(infer::step_weight_bytes(named.model.config(), settings_.type));
  // Only the first run did a step and recorded one.
  const int64_t of_two_steps = 2 * ran[1].kernel_launches - ran[0].kernel_launches - ran[2].kernel_launches;
  const bool recorded = ran[1].recordings > ran[0].recordings;
  records_.add("greedy", {{"shape", named.name},
                          {"batch", rows},
                          {"ms_per_step", kMilli * step},
                          {"ms_least", kMilli * least},
                          {"ms_most", kMilli * most},
                          {"tokens_per_second", static_cast<double>(rows) / step},
                          {"with_encoder", static_cast<double>(rows * settings_.new_tokens) / median(whole)},
                          {"weight_mb", bytes / 1e6},
                          {"roofline_share", bytes / bandwidth_ / step},
                          {"nodes", recorded ? Json(ran[1].nodes) : Json(nullptr)},
                          {"own_nodes", recorded ? Json(of_two_steps / 2) : Json(nullptr)}});
}

void DecodingMeasures::verification(const NamedModel& named, int64_t rows) {
  TimedModel step = timed(named, settings_, rows, std::ranges::max(settings_.lengths));
  const double one = step_seconds(step, 2 * settings_.rounds, 1);
  std::vector<double> relative;
  for (const int64_t tokens : settings_.lengths) {
    relative.push_back(tokens == 1 ? 1 : step_seconds(step, 2 * settings_.rounds, tokens) / one);
  }
  records_.add("verification", {{"shape", named.name},
                                {"batch", rows},
                                {"ms_of_one", kMilli * one},
                                {"tokens", settings_.lengths},
                                {"relative", relative}});
}

void DecodingMeasures::requests(const NamedModel& named) {
  const Sources sources = random_sources(1, settings_.source, named.model.info().vocabulary);
  constexpr int64_t kTokens = 8;
  const auto counts_of = [&](int64_t tokens) {
    Generator generator = greedy_generator(named, 1, tokens);
    decode(generator, sources);  // what only a first run does is left out
    return count_requests([&] { decode(generator, sources); }, settings_.device);
  };
  const DeviceCounts less = counts_of(kTokens);
  Json values{{"shape", named.name}, {"unit", "greedy token"}, {"layers", named.model.config().decoder_layers}};
  values.update(per_unit(less, counts_of(2 * kTokens), kTokens, settings_.device));
  records_.add("requests", values);
}

void DecodingMeasures::drafting(const NamedModel& target, const NamedModel& drafter, int64_t rows) {
  TimedModel target_step = timed(target, settings_, rows, 1);
  TimedModel draft_step = timed(drafter, settings_, rows, 1);
  const double target_seconds = step_seconds(target_step, 2 * settings_.rounds, 1);
  const double draft_seconds = step_seconds(draft_step, 2 * settings_.rounds, 1);
  const auto bytes = [&](const NamedModel& named) {
    return static_cast<double>(infer::step_weight_bytes(named.model.config(), settings_.type));
  };
  records_.add("drafting", {{"target", target.name},
                            {"drafter", drafter.name},
                            {"batch", rows},
                            {"target_ms", kMilli * target_seconds},
                            {"draft_ms", kMilli * draft_seconds},
                            {"cost_ratio", draft_seconds / target_seconds},
                            {"cost_ratio_by_bytes", bytes(drafter) / bytes(target)}});
}

void DecodingMeasures::speculation(const NamedModel& target, const NamedModel& drafter, int64_t rows) {
  const Sources sources = random_sources(rows, settings_.source, target.model.info().vocabulary);
  TimedModel target_step = timed(target, settings_, rows, settings_.window + 1);
  TimedModel draft_step = timed(drafter, settings_, rows, 1);
  infer::StepCosts costs;
  for (int64_t tokens = 1; tokens <= settings_.window + 1; ++tokens) {
    costs.target.push_back(step_seconds(target_step, 2 * settings_.rounds, tokens));
  }
  costs.draft = step_seconds(draft_step, 2 * settings_.rounds, 1);
  const auto options = options_of("speculative", rows, settings_.new_tokens, settings_.window);
  Generator greedy = greedy_generator(target, rows, settings_.new_tokens);
  for (const double alpha : settings_.alphas) {
    CoinDecoding coin(target, drafter, options, alpha);
    std::vector<double> speedups;
    DecodeStats all;
    for (int64_t round = -1; round < settings_.rounds; ++round) {
      const double plain = decode(greedy, sources).seconds.decode();
      const DecodeStats stats = coin.run(sources);
      if (round < 0) continue;
      speedups.push_back(plain / stats.seconds.decode());
      all += stats;
    }
    const double predicted = evaluate::walltime_improvement(alpha, settings_.window, costs);
    records_.add("speculation", {{"target", target.name},
                                 {"drafter", drafter.name},
                                 {"batch", rows},
                                 {"window", settings_.window},
                                 {"alpha", alpha},
                                 {"alpha_found", kept_share(all)},
                                 {"tokens_per_run", all.tokens_per_target_run()},
                                 {"cost_ratio", costs.cost_ratio()},
                                 {"speedup", median(speedups)},
                                 {"predicted", predicted},
                                 {"measured_over_predicted", median(speedups) / predicted}});
  }
}

void DecodingMeasures::round_requests(const NamedModel& target, const NamedModel& drafter) {
  const Sources sources = random_sources(1, settings_.source, target.model.info().vocabulary);
  constexpr int64_t kRounds = 3;
  const auto counts_of = [&](int64_t rounds) {
    const auto options = options_of("speculative", 1, rounds * (settings_.window + 1), settings_.window);
    CoinDecoding coin(target, drafter, options, 1.0);
    coin.run(sources);
    return count_requests([&] { coin.run(sources); }, settings_.device);
  };
  const DeviceCounts less = counts_of(kRounds);
  Json values{{"shape", target.name + " + " + drafter.name},
              {"unit", "round of " + std::to_string(settings_.window) + " drafted tokens"},
              {"layers", target.model.config().decoder_layers}};
  values.update(per_unit(less, counts_of(2 * kRounds), kRounds, settings_.device));
  records_.add("requests", values);
}

}  // namespace draftsmith::bench
