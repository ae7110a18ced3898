#include "evaluate/theory/ppd_simulation.h"

#include <algorithm>
#include <stdexcept>

#include "base/device.h"
#include "base/statistics.h"
#include "base/timing.h"
#include "infer/inside/ppd_account.h"
#include "infer/inside/ppd_sides.h"
#include "infer/loop/vocabulary.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::evaluate {
namespace {

// Returns the number of branches of one device if so many devices share all branches.
int64_t branches_of_one(int64_t candidates, int64_t devices) {
  return (candidates + devices - 1) / devices;
}

// Seconds of each part, one for each of its runs.
struct Samples {
  std::vector<double> embedding;
  std::vector<double> layers;  // of all layers
  std::vector<double> head;
  std::vector<double> early_head;
  std::map<int64_t, std::vector<double>> branches;
};

// Timer of the parts of decoding a token after the prefix.
class PartTimer {
 public:
  PartTimer(model::TransformerModel& target, const model::Exits* exits, const infer::PpdSettings& ppd,
            const infer::CalibrationContext& context)
      : target_(target), exits_(exits), ppd_(ppd) {
    const auto known = infer::mask_unknown_ids(target.info(), std::vector{context.source, context.prefix});
    length_ = std::ssize(known[1]);
    token_ = known[1].back();
    prepared_ = infer::state_after(target, known[0], known[1], {length_ + 1 + ppd.candidates});
  }

  // Times the parts of a plain step, then so many branches of the next token. Leaves the caches as they were.
  void run(int64_t branches, Samples& samples) {
    model::DecoderState& state = dynamic_cast<model::DecoderState&>(*prepared_.state);
    const int64_t layers = target_.info().layers;
    const int64_t early = ppd_.early_layer;
    const auto layout = state.append(std::vector<int64_t>{1}, 1, 0);
    at::Tensor hidden;
    samples.embedding.push_back(
        seconds([&] { hidden = target_.embed(infer::equal_rows(target_, std::vector{token_}).tokens, layout); }));
    double all_layers = seconds([&] { hidden = target_.run_layers({0, early}, hidden, layout, state); });
    samples.early_head.push_back(seconds([&] {
      infer::most_likely_tokens(model::exit_logits(target_, exits_, early, hidden).squeeze(1), ppd_.candidates);
    }));
    all_layers += seconds([&] { hidden = target_.run_layers({early, layers}, hidden, layout, state); });
    samples.layers.push_back(all_layers);
    samples.head.push_back(seconds([&] { infer::to_host(infer::most_likely(target_.exit_head(hidden))); }));
    const auto siblings = state.siblings(std::vector{branches}, branches);
    const std::vector<int64_t> same(static_cast<size_t>(branches), token_);
    const at::Tensor tokens = infer::equal_rows(target_, same).tokens;
    samples.branches[branches].push_back(seconds([&] {
      target_.run_layers({0, layers - early}, target_.embed(tokens, siblings), siblings, state);
    }));
    state.rollback(std::vector<int64_t>{length_});
  }

  // Returns the seconds until the work is done on the device.
  template <class Work>
  double seconds(const Work& work) const {
    synchronize(target_.info().device);
    const Stopwatch watch;
    work();
    synchronize(target_.info().device);
    return watch.seconds();
  }

 private:
  model::TransformerModel& target_;
  const model::Exits* exits_;
  const infer::PpdSettings& ppd_;
  int64_t length_ = 0;
  int64_t token_ = 0;
  infer::CalibrationState prepared_;
};

// Times of a token that begins anew and of one that continues from a branch.
struct PpdTimes {
  double anew = 0;
  double resumed = 0;
};

PpdTimes run_times(const LayerTimes& times, const PpdSetting& setting, int64_t devices) {
  const double outer = static_cast<double>(setting.layers - setting.early_layer) * times.layer;  // the first, the last
  const double between = static_cast<double>(2 * setting.early_layer - setting.layers) * times.layer;
  const double predict = between + times.early_head;
  const double begin = times.embedding + outer + predict;
  const double finish = outer + times.head;
  if (devices == 1) {
    const double branches = times.branches.at(setting.candidates);
    return {begin + branches + finish, predict + branches + finish};
  }
  const double branches = times.message + times.branches.at(branches_of_one(setting.candidates, devices - 1));
  // The K/V of a token that begins anew are copied while it goes on; the other processes wait for them.
  const double late = std::max(0.0, times.copy - predict);
  return {begin + std::max(finish, late + branches), times.copy + predict + std::max(finish, branches)};
}

template <class Once>
double median_of(int64_t repetitions, const Once& once) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < infer::kCalibrationWarmup + repetitions; ++i) {
    const double measured = once();
    if (i >= infer::kCalibrationWarmup) seconds.push_back(measured);
  }
  return median(std::move(seconds));
}

}  // namespace

LayerTimes measure_layer_times(model::TransformerModel& target, const model::Exits* exits,
                               const infer::PpdSettings& ppd, const infer::CalibrationContext& context,
                               int64_t repetitions) {
  const model::DecodingGuard guard;
  const int64_t ahead = infer::PpdAccount(target.info().layers, ppd.early_layer).ahead();
  PartTimer parts(target, exits, ppd, context);
  Samples samples;
  for (int64_t i = 0; i < infer::kCalibrationWarmup + repetitions; ++i) {
    if (i == infer::kCalibrationWarmup) samples = {};
    for (int64_t devices = 1; devices <= ppd.candidates; ++devices) {
      const int64_t branches = branches_of_one(ppd.candidates, devices);
      if (devices == 1 || branches != branches_of_one(ppd.candidates, devices - 1)) parts.run(branches, samples);
    }
  }
  LayerTimes times;
  times.embedding = median(samples.embedding);
  times.layer = median(samples.layers) / static_cast<double>(target.info().layers);
  times.head = median(samples.head);
  times.early_head = median(samples.early_head);
  for (const auto& [branches, seconds] : samples.branches) times.branches[branches] = median(seconds);
  const model::TransformerConfig& config = target.config();
  const int64_t numbers = ahead * 2 * config.key_value_heads() * config.head_width + config.width;
  const at::Tensor from =
      at::zeros({numbers}, at::TensorOptions(target.info().dtype).device(target.info().device));  // [n]
  const at::Tensor to = at::zeros_like(from);
  times.copy_bytes = numbers * static_cast<int64_t>(from.element_size());
  times.copy = median_of(repetitions, [&] { return parts.seconds([&] { to.copy_(from); }); });
  infer::PpdSides sides(infer::PpdExecution::kThreads, at::kCPU);
  times.message = median_of(repetitions, [&] {
    const Stopwatch watch;
    sides.run([] {}, [] {});
    return watch.seconds() / 2;
  });
  return times;
}

double PpdSimulation::theorem_speedup() const {
  return static_cast<double>(setting.layers) / theorem.latency;
}

double PpdSimulation::speedup(int64_t devices) const {
  return plain / latency.at(static_cast<size_t>(devices - 1));
}

PpdSimulation simulate_ppd(const LayerTimes& times, const PpdSetting& setting, double tokens) {
  if (!(tokens >= 1)) throw std::invalid_argument("a sequence has at least one token");
  PpdSimulation result;
  result.setting = setting;
  result.tokens = tokens;
  result.times = times;
  result.plain = times.embedding + static_cast<double>(setting.layers) * times.layer + times.head;
  // The first token begins anew, and so does each other one that no branch predicted.
  const double followers = (tokens - 1) / tokens;
  const double resumed = setting.match_rate * followers;
  for (int64_t devices = 1; devices <= setting.candidates + 1; ++devices) {
    const PpdTimes runs = run_times(times, setting, devices);
    result.latency.push_back((1 - resumed) * runs.anew + resumed * runs.resumed);
    if (!result.pays_from && result.latency.back() < result.plain) result.pays_from = devices;
  }
  const PpdTimes runs = run_times(times, setting, setting.candidates + 1);
  const double break_even = (runs.anew - result.plain) / ((runs.anew - runs.resumed) * followers);
  if (followers > 0 && runs.anew > runs.resumed && break_even <= 1) {
    result.break_even_match_rate = std::max(0.0, break_even);
  }
  PpdSetting followed = setting;  // in the theorem l - 1 of l tokens can be predicted
  followed.match_rate = resumed;
  result.theorem = ppd_cost_per_token(followed);
  return result;
}

}  // namespace draftsmith::evaluate
