#include "infer/inside/ppd_account.h"

#include <stdexcept>

namespace draftsmith::infer {

PpdAccount::PpdAccount(int64_t layers, int64_t early_layer) : layers_(layers), early_layer_(early_layer) {
  if (layers < 1 || 2 * early_layer < layers || early_layer > layers) {
    throw std::logic_error("PPD predicts early at one of the layers d/2 .. d");
  }
}

void PpdAccount::count(const PpdTally& run, DecodeStats& stats) const {
  const int64_t latency = run.resumed ? early_layer_ : layers_;
  const int64_t compute = latency + run.branches * ahead();
  stats.latency_units += latency;
  stats.compute_units += compute;
  stats.layer_runs += compute;
  if (!run.followed) return;
  ++stats.early_predictions;
  stats.early_matches += run.matched ? 1 : 0;
}

}  // namespace draftsmith::infer
