#include "infer/forced/forced_alpha.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "infer/drafters/drafter_probe.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

namespace {

void add_batch(const ForcedPair& models, const ForcedBatch& batch, AlphaSums& sums) {
  TeacherForcing target(models.target, batch);
  const auto sources = mask_unknown_ids(models.drafter.info(), batch.sources);
  const auto outputs = mask_unknown_ids(models.drafter.info(), batch.outputs);
  TeacherForcing drafter(models.drafter, {sources, outputs});
  sums.add_batch(target, batch, [&](int64_t width) {
    const auto p = target.next(width);  // [B,L,V]
    return LogitsPair{p, drafter.next(width)};
  });
}

void add_row(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& row, AlphaSums& sums) {
  const model::ModelInfo& info = target.info();
  const std::vector<int64_t>& source = row.sources.front();
  const std::vector<int64_t>& output = row.outputs.front();
  TeacherForcing forcing(target, row);
  DrafterProbe probe(drafter, info, info.encoder_decoder ? source : std::vector<int64_t>{},
                     info.encoder_decoder ? std::vector<int64_t>{info.decoder_start} : source);
  const int64_t at_once = forcing.positions_at_once();
  for (int64_t done = 0; done < forcing.longest(); done += at_once) {
    const int64_t width = std::min(at_once, forcing.longest() - done);
    const auto logits = forcing.next(width);  // [1,L,V]
    for (int64_t j = 0; j < width; ++j) {
      const int64_t token = output[static_cast<size_t>(done + j)];
      sums.add(logits.narrow(1, j, 1), token, probe);
      probe.commit(token);
    }
  }
}

}  // namespace

ForcedAlpha measure_forced_alpha(const ForcedPair& models, std::span<const std::vector<int64_t>> sources,
                                 std::span<const std::vector<int64_t>> outputs, const Warping& warping,
                                 int64_t batch_size) {
  const at::NoGradGuard no_grad;
  AlphaSums sums(warping);
  for_each_batch({sources, outputs}, static_cast<size_t>(batch_size),
                 [&](const ForcedBatch& batch) { add_batch(models, batch, sums); });
  return sums.mean();
}

ForcedAlpha measure_forced_alpha(model::LanguageModel& target, Drafter& drafter,
                                 std::span<const std::vector<int64_t>> sources,
                                 std::span<const std::vector<int64_t>> outputs, const Warping& warping) {
  const at::NoGradGuard no_grad;
  AlphaSums sums(warping);
  for (size_t i = 0; i < sources.size(); ++i) {
    add_row(target, drafter, {sources.subspan(i, 1), outputs.subspan(i, 1)}, sums);
  }
  return sums.mean();
}

}  // namespace draftsmith::infer
