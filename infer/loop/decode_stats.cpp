#include "infer/loop/decode_stats.h"

#include <array>
#include <limits>

#include <nlohmann/json.hpp>

namespace draftsmith::infer {
namespace {

// The counts that add up as numbers.
constexpr std::array kStatsCounts{
    &DecodeStats::emitted,       &DecodeStats::target_runs,       &DecodeStats::draft_runs,
    &DecodeStats::verifications, &DecodeStats::drafted,           &DecodeStats::accepted,
    &DecodeStats::fallbacks,     &DecodeStats::rollbacks,         &DecodeStats::cut,
    &DecodeStats::overlap_count, &DecodeStats::target_tokens,     &DecodeStats::layer_runs,
    &DecodeStats::latency_units, &DecodeStats::early_predictions, &DecodeStats::early_matches,
    &DecodeStats::compute_units, &DecodeStats::unverified};

constexpr double PhaseSeconds::*kPhases[] = {&PhaseSeconds::encode, &PhaseSeconds::prefill, &PhaseSeconds::draft,
                                             &PhaseSeconds::verify, &PhaseSeconds::other};

}  // namespace

double& PhaseSeconds::operator[](Phase phase) {
  return this->*kPhases[static_cast<size_t>(phase)];
}

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& added) {
  for (const auto phase : kPhases) this->*phase += added.*phase;
  return *this;
}

PhaseSeconds PhaseSeconds::scaled(double factor) const {
  return {encode * factor, prefill * factor, draft * factor, verify * factor, other * factor};
}

namespace {

double ratio(double part, int64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

double ratio(int64_t part, int64_t whole) {
  return ratio(static_cast<double>(part), whole);
}

void grow(std::vector<int64_t>& counts, int64_t size) {
  counts.resize(std::max(counts.size(), static_cast<size_t>(size)), 0);
}

void add_counts(std::vector<int64_t>& counts, const std::vector<int64_t>& added) {
  grow(counts, static_cast<int64_t>(added.size()));
  for (size_t i = 0; i < added.size(); ++i) counts[i] += added[i];
}

}  // namespace

void DecodeStats::count_verification(int64_t drafted_now, int64_t accepted_now, int64_t window) {
  ++verifications;
  drafted += drafted_now;
  accepted += accepted_now;
  const int64_t longest = std::max(window, drafted_now);
  grow(accepted_histogram, longest + 1);
  grow(examined_by_position, longest);
  grow(accepted_by_position, longest);
  ++accepted_histogram[static_cast<size_t>(accepted_now)];
  for (int64_t j = 0; j < std::min(accepted_now + 1, drafted_now); ++j) ++examined_by_position[static_cast<size_t>(j)];
  for (int64_t j = 0; j < accepted_now; ++j) ++accepted_by_position[static_cast<size_t>(j)];
}

DecodeStats& DecodeStats::operator+=(const DecodeStats& added) {
  for (const auto count : kStatsCounts) this->*count += added.*count;
  add_counts(exits_by_layer, added.exits_by_layer);
  add_counts(accepted_histogram, added.accepted_histogram);
  add_counts(examined_by_position, added.examined_by_position);
  add_counts(accepted_by_position, added.accepted_by_position);
  overlap_sum += added.overlap_sum;
  target_steps += added.target_steps;
  draft_steps += added.draft_steps;
  seconds += added.seconds;
  return *this;
}

double DecodeStats::alpha() const {
  return ratio(overlap_sum, overlap_count);
}
double DecodeStats::acceptance_rate() const {
  return ratio(accepted - unverified, drafted - unverified);
}
double DecodeStats::tokens_per_target_run() const {
  return ratio(emitted, target_runs);
}
double DecodeStats::fallback_rate() const {
  return ratio(fallbacks, emitted);
}
double DecodeStats::rollback_rate() const {
  return ratio(rollbacks, emitted);
}

double DecodeStats::match_rate() const {
  return ratio(early_matches, early_predictions);
}

double DecodeStats::average_exit_layer() const {
  int64_t layers = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < exits_by_layer.size(); ++i) {
    layers += static_cast<int64_t>(i + 1) * exits_by_layer[i];
    tokens += exits_by_layer[i];
  }
  return ratio(layers, tokens);
}

std::vector<double> DecodeStats::acceptance_by_position() const {
  std::vector<double> rates(examined_by_position.size());
  for (size_t j = 0; j < rates.size(); ++j) rates[j] = ratio(accepted_by_position[j], examined_by_position[j]);
  return rates;
}

using nlohmann::ordered_json;

ordered_json stats_json(const DecodeStats& stats, bool with_alpha) {
  const auto& seconds = stats.seconds;
  ordered_json json{{"target_runs", stats.target_runs},
                    {"draft_runs", stats.draft_runs},
                    {"drafted", stats.drafted},
                    {"accepted", stats.accepted},
                    {"accepted_histogram", stats.accepted_histogram},
                    {"fallbacks", stats.fallbacks},
                    {"rollbacks", stats.rollbacks},
                    {"seconds",
                     {{"encode", seconds.encode},
                      {"prefill", seconds.prefill},
                      {"draft", seconds.draft},
                      {"verify", seconds.verify},
                      {"other", seconds.other}}}};
  if (stats.unverified > 0) json["unverified"] = stats.unverified;
  if (stats.layer_runs > 0) json["layer_runs"] = stats.layer_runs;
  if (!stats.exits_by_layer.empty()) json["exits_by_layer"] = stats.exits_by_layer;
  if (stats.latency_units > 0) json["latency_units"] = stats.latency_units;
  if (stats.compute_units > 0) {
    json["compute_units"] = stats.compute_units;
    json["early_predictions"] = stats.early_predictions;
    json["early_matches"] = stats.early_matches;
  }
  if (with_alpha && stats.overlap_count > 0) json["alpha"] = stats.alpha();
  return json;
}

}  // namespace draftsmith::infer
