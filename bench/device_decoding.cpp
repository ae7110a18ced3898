// Decoding speed on a device, random weights made there: greedy decoding beside what the copy bandwidth of the same run
// allows, verification curves, and speculation at known acceptance rates. tools/gpu runs it.
//
//   build/release/bench/bench_device_decoding --device cuda --dtype bf16 --shapes t5-small,t5-large --batches 1,16
//     --pairs t5-large:t5-small --json FILE
//
// Prints a JSON record a line, medians of --rounds rounds; --json FILE is complete after each record. A shape that
// fails (too little memory) is a record with `problem`, and the rest goes on.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/device_kernels.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/timing.h"
#include "base/util.h"
#include "bench/support/benches.h"
#include "bench/support/program.h"
#include "evaluate/theory/formulas.h"
#include "infer/acceptance/acceptance_rule.h"
#include "infer/costs/decode_work.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "infer/loop/decode_loop.h"

namespace draftsmith::bench {
namespace {

using infer::DecodeStats;
using infer::Generator;
using infer::random_sources;
using infer::TimedModel;
using Json = nlohmann::ordered_json;
using Sources = std::vector<std::vector<int64_t>>;

constexpr double kMilli = 1e3;

// An oracle of acceptance: drafted tokens are kept by the throw of a coin, so that the acceptance rate is known
// exactly.
//
// Runs another rule, whose work is part of what is timed, and replaces the number of tokens that it kept: each drafted
// token is kept with probability `alpha` if all before it are. The text means nothing; its speed is that of a drafter
// whose tokens are accepted independently at this rate, as the theory assumes (Leviathan et al. 2023).
class CoinAcceptance final : public infer::AcceptanceRule {
 public:
  // `coins`: numbers for rows that only the device knows, fp64 [B,N,3] as DeviceRows::uniforms; greedy decoding has
  // none there. Other rows have their own.
  CoinAcceptance(std::unique_ptr<infer::AcceptanceRule> rule, double alpha, at::Tensor coins)
      : rule_(std::move(rule)), alpha_(alpha), coins_(std::move(coins)) {}

  infer::AcceptanceTraits traits() const override { return rule_->traits(); }

  infer::Judgement judge(const infer::Verification& verification) override {
    infer::Judgement judgement = rule_->judge(verification);
    const at::Tensor kept = numbers(verification).lt(alpha_);  // [B,G]
    judgement.accepted = infer::leading(kept & infer::drafted_positions(verification));
    return judgement;
  }

 private:
  at::Tensor numbers(const infer::Verification& verification) const {
    const int64_t window = verification.tokens.size(1);
    if (verification.on_device == nullptr) return infer::uniforms_of(verification, infer::Draw::kAccept, window);
    infer::DeviceRows rows = *verification.on_device;
    rows.uniforms = coins_;
    return infer::row_uniforms(rows, infer::Draw::kAccept, 0, window);
  }

  std::unique_ptr<infer::AcceptanceRule> rule_;
  double alpha_;
  at::Tensor coins_;
};

struct Flags {
  std::string dtype = "fp32";
  std::vector<std::string> shapes;
  std::vector<std::string> pairs;
  std::vector<int64_t> batches = {1};
  std::vector<int64_t> pair_batches = {1};
  std::vector<int64_t> lengths = {1, 2, 4, 5, 8, 16};
  std::vector<double> alphas = {0.6, 0.7, 0.8, 0.9};
  int64_t rounds = 5;
  int64_t new_tokens = 64;  // decoded tokens a row
  int64_t source = 32;      // tokens of a source or prompt
  int64_t window = 4;       // of speculation
};

// A model under test.
struct NamedModel {
  std::string name;
  model::TransformerModel& model;
};

infer::DecodeOptions options_of(const std::string& method, int64_t rows, int64_t new_tokens, int64_t window = 0) {
  infer::DecodeOptions options{.method = method, .temperature = 0, .max_new_tokens = new_tokens, .batch_size = rows};
  if (window == 0) return options;
  options.window = window;
  options.acceptance = "exact";
  return options;
}

Generator greedy_generator(const NamedModel& named, int64_t rows, int64_t new_tokens) {
  infer::GenerationModels models{.target = &named.model};
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
    infer::GenerationModels models{.target = &target.model, .drafter = infer::as_drafter(drafter.model)};
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

// A source (encoder-decoder) and as many tokens of output, or a prompt of that length.
infer::CalibrationContext context_of(const NamedModel& named, const Flags& flags, int64_t rows) {
  return infer::random_context(named.model.info(), {.rows = rows, .source = flags.source, .length = flags.source});
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

class DecodingMeasures {
 public:
  // Measures the copy bandwidth at once, for the roofline shares. The records must outlive the measures.
  DecodingMeasures(const Flags& flags, at::Device device, Records& records)
      : flags_(flags), device_(device), type_(parse_dtype(flags.dtype)), records_(records) {
    records.keep("dtype", flags.dtype);
    bandwidth_ = copy_bandwidth(device.is_cuda() ? int64_t{2048} << 20 : int64_t{8} << 20);
  }

  // Measures greedy decoding: time of a step, tokens/s of all rows, with encoder and prefill too, share of the time
  // that reading the weights takes, and nodes of a recorded step.
  void greedy(const NamedModel& named, int64_t rows) {
    const Sources sources = random_sources(rows, flags_.source, named.model.info().vocabulary);
    Generator generator = greedy_generator(named, rows, flags_.new_tokens);
    std::vector<double> seconds;
    std::vector<double> whole;
    std::vector<DeviceExecution> ran{device_execution()};  // before each round
    for (int64_t round = -1; round < flags_.rounds; ++round) {
      const DecodeStats stats = decode(generator, sources);
      ran.push_back(device_execution());
      if (round < 0) continue;
      seconds.push_back(stats.seconds.decode() / static_cast<double>(flags_.new_tokens));
      whole.push_back(stats.seconds.total());
    }
    const double step = median(seconds);
    const auto bytes = static_cast<double>(infer::step_weight_bytes(named.model.config(), type_));
    const bool recorded = ran[1].recordings > ran[0].recordings;
    records_.add("greedy", {{"shape", named.name},
                            {"batch", rows},
                            {"ms_per_step", kMilli * step},
                            {"tokens_per_second", static_cast<double>(rows) / step},
                            {"with_encoder", static_cast<double>(rows * flags_.new_tokens) / median(whole)},
                            {"weight_mb", bytes / 1e6},
                            {"roofline_share", bytes / bandwidth_ / step},
                            {"nodes", recorded ? Json(ran[1].nodes) : Json(nullptr)}});
  }

  // Measures a step of L tokens a row beside a step of one token.
  void verification(const NamedModel& named, int64_t rows) {
    TimedModel step(named.model, context_of(named, flags_, rows), std::ranges::max(flags_.lengths));
    const double one = step_seconds(step, 2 * flags_.rounds, 1);
    std::vector<double> relative;
    for (const int64_t tokens : flags_.lengths) {
      relative.push_back(tokens == 1 ? 1 : step_seconds(step, 2 * flags_.rounds, tokens) / one);
    }
    records_.add("verification", {{"shape", named.name},
                                  {"batch", rows},
                                  {"ms_of_one", kMilli * one},
                                  {"tokens", flags_.lengths},
                                  {"relative", relative}});
  }

  // Measures speculation whose tokens are accepted at each rate of --alphas: speedup over greedy decoding in the same
  // round, and the speedup that the measured steps predict.
  void speculation(const NamedModel& target, const NamedModel& drafter, int64_t rows) {
    const Sources sources = random_sources(rows, flags_.source, target.model.info().vocabulary);
    const infer::StepCosts costs =
        infer::measure_step_costs(target.model, drafter.model, context_of(target, flags_, rows), flags_.window + 1);
    const auto options = options_of("speculative", rows, flags_.new_tokens, flags_.window);
    Generator greedy = greedy_generator(target, rows, flags_.new_tokens);
    for (const double alpha : flags_.alphas) {
      CoinDecoding coin(target, drafter, options, alpha);
      std::vector<double> speedups;
      DecodeStats all;
      for (int64_t round = -1; round < flags_.rounds; ++round) {
        const double plain = decode(greedy, sources).seconds.decode();
        const DecodeStats stats = coin.run(sources);
        if (round < 0) continue;
        speedups.push_back(plain / stats.seconds.decode());
        all += stats;
      }
      const double predicted = evaluate::walltime_improvement(alpha, flags_.window, costs);
      records_.add("speculation", {{"target", target.name},
                                   {"drafter", drafter.name},
                                   {"batch", rows},
                                   {"window", flags_.window},
                                   {"alpha", alpha},
                                   {"alpha_found", kept_share(all)},
                                   {"tokens_per_run", all.tokens_per_target_run()},
                                   {"cost_ratio", costs.cost_ratio()},
                                   {"speedup", median(speedups)},
                                   {"predicted", predicted},
                                   {"measured_over_predicted", median(speedups) / predicted}});
    }
  }

 private:
  double copy_bandwidth(int64_t bytes) {
    const at::Tensor from = at::ones({bytes}, at::TensorOptions(device_).dtype(at::kByte));
    const at::Tensor to = at::zeros_like(from);
    std::vector<double> times;
    for (int64_t round = -2; round < flags_.rounds; ++round) {
      synchronize(device_);
      const Stopwatch watch;
      to.copy_(from);
      synchronize(device_);
      if (round >= 0) times.push_back(watch.seconds());
    }
    const double seconds = median(times);
    const double bandwidth = 2 * static_cast<double>(bytes) / seconds;
    records_.add("copy", {{"bytes", bytes}, {"ms", kMilli * seconds}, {"gb_per_second", bandwidth / 1e9}});
    return bandwidth;
  }

  const Flags& flags_;
  at::Device device_;
  at::ScalarType type_;
  Records& records_;
  double bandwidth_ = 0;  // bytes read and written a second
};

// ---- The program ----

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--dtype", flags.dtype, "fp32, bf16, fp16 or fp64");
  app.add_option("--shapes", flags.shapes, "shapes that decode alone: t5-small,t5-large,...")->delimiter(',');
  app.add_option("--pairs", flags.pairs, "TARGET:DRAFTER,... that speculate")->delimiter(',');
  app.add_option("--batches", flags.batches, "rows of a batch, for --shapes")->delimiter(',');
  app.add_option("--pair-batches", flags.pair_batches, "rows of a batch, for --pairs")->delimiter(',');
  app.add_option("--lengths", flags.lengths, "tokens of the verification curve's steps")->delimiter(',');
  app.add_option("--alphas", flags.alphas, "acceptance rates of speculation")->delimiter(',');
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber);
  app.add_option("--new-tokens", flags.new_tokens)->check(CLI::PositiveNumber);
  app.add_option("--source", flags.source, "tokens of a source or prompt")->check(CLI::PositiveNumber);
}

void measure(const Flags& flags, at::Device device, Records& records) {
  const auto made = [&](const std::string& name) {
    return random_decoder(shape_config(name), device, parse_dtype(flags.dtype));
  };
  DecodingMeasures measures(flags, device, records);
  for (const std::string& name : flags.shapes) {
    records.guard(name, [&] {
      const auto model = made(name);
      for (const int64_t rows : flags.batches) {
        measures.greedy({name, *model}, rows);
        measures.verification({name, *model}, rows);
      }
      return true;
    });
  }
  for (const std::string& pair : flags.pairs) {
    records.guard(pair, [&] {
      const size_t colon = pair.find(':');
      if (colon == std::string::npos) throw UserError({"--pairs", "not a pair", "TARGET:DRAFTER", pair, ""});
      const std::string names[] = {pair.substr(0, colon), pair.substr(colon + 1)};
      const auto target = made(names[0]);
      const auto drafter = made(names[1]);
      for (const int64_t rows : flags.pair_batches) {
        measures.speculation({names[0], *target}, {names[1], *drafter}, rows);
      }
      return true;
    });
  }
}

}  // namespace
}  // namespace draftsmith::bench

int main(int argc, char** argv) {
  draftsmith::keep_freed_memory();
  draftsmith::bench::Flags flags;
  draftsmith::bench::Program program("Decoding speed on a device, random weights");
  draftsmith::bench::add_flags(program.app, flags);
  return program.run(argc, argv, [&](at::Device device, draftsmith::bench::Records& records) {
    draftsmith::bench::measure(flags, device, records);
    return true;
  });
}
