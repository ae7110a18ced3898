#include "evaluate/results/work_summary.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "evaluate/theory/formulas.h"
#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

std::optional<infer::DecodeWork> work_of(const MeasuredTask& measured, const Setting& setting, Engine& engine) {
  const SettingRecords& records = measured.records.at(setting.label);
  std::vector<infer::DecodedLine> lines;
  for (size_t line = 0; line < records.size(); ++line) {
    if (records[line].failure) continue;
    lines.push_back({.source = std::ssize(measured.prompts[line]), .stats = &records[line].stats});
  }
  auto work = lines.empty() ? std::nullopt : engine.work(setting, lines);
  if (work && (work->emitted == 0 || work->total().bytes() == 0)) return std::nullopt;
  return work;
}

// Returns the work as much as one token takes.
infer::Work per_token(const infer::Work& work, const infer::DecodeWork& whole) {
  return work.times(1 / static_cast<double>(whole.emitted));
}

// Returns the operations factor of a fixed window at the measured alpha.
std::optional<double> theory_ratio(const Setting& setting, const infer::DecodeStats& stats, double drafter_ratio) {
  const bool fixed = setting.decode.drafts() && infer::window_traits(setting.decode).constant_length;
  if (!fixed || stats.overlap_count == 0 || !std::isfinite(drafter_ratio)) return std::nullopt;
  return operations_factor(std::clamp(stats.alpha(), 0.0, 1.0), setting.decode.fixed_window(), drafter_ratio);
}

}  // namespace

std::optional<WorkResult> work_result(const MeasuredTask& measured, const Setting& setting, Engine& engine) {
  const auto work = work_of(measured, setting, engine);
  if (!work) return std::nullopt;
  const infer::Work own = per_token(work->total(), *work);
  const infer::Work input = per_token(work->input, *work);
  const infer::Work draft = per_token(work->draft, *work);
  WorkResult result{.operations = own.operations,
                    .bytes = own.bytes(),
                    .input_operations = input.operations,
                    .input_bytes = input.bytes(),
                    .draft_operations = draft.operations,
                    .draft_bytes = draft.bytes()};
  const double ratio = work->operations_ratio();
  if (std::isfinite(ratio)) result.drafter_operations_ratio = ratio;
  result.theory_operations_ratio = theory_ratio(setting, sum_of_stats(measured.records.at(setting.label)), ratio);
  const auto greedy = work_of(measured, greedy_baseline(), engine);
  if (!greedy) return result;
  const infer::Work plain = per_token(greedy->total(), *greedy);
  result.operations_ratio = own.operations / plain.operations;
  result.bytes_ratio = own.bytes() / plain.bytes();
  result.intensity_ratio = *result.operations_ratio / *result.bytes_ratio;
  result.decode_operations_ratio =
      per_token(work->decoding(), *work).operations / per_token(greedy->decoding(), *greedy).operations;
  return result;
}

}  // namespace draftsmith::evaluate
