#include "infer/forced_alpha.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/drafters/drafter_probe.h"
#include "infer/teacher_forcing.h"
#include "infer/vocabulary.h"

namespace draftsmith::infer {

namespace {

// Logits held at once, in values: bounds memory at large vocabularies.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

struct Sums {
  double overlap = 0;
  int64_t same = 0;
  int64_t positions = 0;
};

void add_batch(const ForcedPair& models, const ForcedBatch& batch, const Warping& warping, Sums& sums) {
  TeacherForcing target(models.target, batch);
  const auto sources = known_to(models.drafter.info(), batch.sources);
  const auto outputs = known_to(models.drafter.info(), batch.outputs);
  TeacherForcing drafter(models.drafter, {sources, outputs});
  const int64_t shared = std::min(models.target.info().vocabulary, models.drafter.info().vocabulary);
  const int64_t at_once = std::max<int64_t>(1, kLogitsAtOnce / (target.rows() * models.target.info().vocabulary));
  for (int64_t done = 0; done < target.longest(); done += at_once) {
    const int64_t width = std::min(at_once, target.longest() - done);
    std::vector<int64_t> valid;
    for (int64_t b = 0; b < target.rows(); ++b) valid.push_back(target.valid(b, width));
    const auto p = target.next(width).narrow(2, 0, shared);   // [B,L,V]
    const auto q = drafter.next(width).narrow(2, 0, shared);  // [B,L,V]
    const auto lengths = to_device(valid, {target.rows(), 1}, p.device());
    const auto counted = at::arange(width, lengths.options()).unsqueeze(0).lt(lengths);  // [B,L]
    const auto choice = most_likely(p);                                                  // [B,L]
    const auto same = choice.eq(most_likely(q)) & choice.ne(kNoToken) & counted;
    sums.same += same.sum().item<int64_t>();
    sums.positions += counted.sum().item<int64_t>();
    if (!warping.greedy()) {
      sums.overlap += at::where(counted, overlap(warp(p, warping), warp(q, warping)), 0.0).sum().item<double>();
    }
  }
}

ForcedAlpha mean_of(const Sums& sums, const Warping& warping) {
  if (sums.positions == 0) return {};
  const auto positions = static_cast<double>(sums.positions);
  const double agreement = static_cast<double>(sums.same) / positions;
  return {warping.greedy() ? agreement : sums.overlap / positions, agreement, sums.positions};
}

// Adds one position: the target's logits [1,1,V] against what the drafter would put there.
void add_position(const at::Tensor& logits, DrafterProbe& drafter, const DrafterTraits& traits, const Warping& warping,
                  Sums& sums) {
  ++sums.positions;
  const int64_t token = drafter.next_token();
  sums.same += token != kNoProposal && token == most_likely(logits).item<int64_t>() ? 1 : 0;
  if (warping.greedy()) return;
  const auto p = warp(logits, warping);  // [1,1,V]
  if (traits.logits) {
    sums.overlap += overlap(p, warp(drafter.next_logits(), warping).unsqueeze(1)).item<double>();
  } else if (token != kNoProposal) {
    sums.overlap += p[0][0][token].item<double>();
  }
}

void add_row(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& row, const Warping& warping,
             Sums& sums) {
  const model::ModelInfo& info = target.info();
  const std::vector<int64_t>& source = row.sources.front();
  const std::vector<int64_t>& output = row.outputs.front();
  TeacherForcing forcing(target, row);
  DrafterProbe probe(drafter, info, info.encoder_decoder ? source : std::vector<int64_t>{},
                     info.encoder_decoder ? std::vector<int64_t>{info.decoder_start} : source);
  const int64_t at_once = std::max<int64_t>(1, kLogitsAtOnce / info.vocabulary);
  for (int64_t done = 0; done < forcing.longest(); done += at_once) {
    const int64_t width = std::min(at_once, forcing.longest() - done);
    const auto logits = forcing.next(width);  // [1,L,V]
    for (int64_t j = 0; j < width; ++j) {
      add_position(logits.narrow(1, j, 1), probe, drafter.traits(), warping, sums);
      probe.commit(output[static_cast<size_t>(done + j)]);
    }
  }
}

}  // namespace

ForcedAlpha alpha_forced(const ForcedPair& models, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping, int64_t batch_size) {
  const at::NoGradGuard no_grad;
  Sums sums;
  const auto rows = static_cast<size_t>(batch_size);
  for (size_t first = 0; first < sources.size(); first += rows) {
    const size_t count = std::min(rows, sources.size() - first);
    add_batch(models, {sources.subspan(first, count), outputs.subspan(first, count)}, warping, sums);
  }
  return mean_of(sums, warping);
}

ForcedAlpha alpha_forced(model::LanguageModel& target, Drafter& drafter, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping) {
  const at::NoGradGuard no_grad;
  Sums sums;
  for (size_t i = 0; i < sources.size(); ++i) {
    add_row(target, drafter, {sources.subspan(i, 1), outputs.subspan(i, 1)}, warping, sums);
  }
  return mean_of(sums, warping);
}

}  // namespace draftsmith::infer
