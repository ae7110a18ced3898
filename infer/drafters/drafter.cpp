#include "infer/drafters/drafter.h"

#include <algorithm>

#include "base/logging.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

const model::TransformerModel* LoadedDrafter::transformer() const {
  return dynamic_cast<const model::TransformerModel*>(model());
}

void LoadedDrafter::warn_of_positions(const model::ModelInfo& target, int64_t tokens) const {
  if (warned_.exchange(true)) return;
  log_warning(
      "the drafter {} has {} positions, and texts may have {} tokens: it drafts as far as it can, and the model {} "
      "writes the rest alone",
      name(), model() == nullptr ? 0 : model()->info().max_positions, tokens, target.name);
}

int64_t positions_left(const model::ModelInfo& drafter, const Row& row, bool reads_source) {
  const int64_t positions = drafter.max_positions;
  if (positions == 0) return std::numeric_limits<int64_t>::max();
  if (reads_source && std::ssize(row.source) > positions) return 0;
  return std::max<int64_t>(0, positions + 1 - row.length());  // the last drafted token need not be read
}

int64_t capacity_within(const model::ModelInfo& drafter, int64_t capacity) {
  return drafter.max_positions > 0 ? std::min(capacity, drafter.max_positions) : capacity;
}

DrafterProbe::DrafterProbe(Drafter& drafter, const model::ModelInfo& target, const std::vector<int64_t>& source,
                           const std::vector<int64_t>& tokens)
    : drafter_(drafter), rows_(1), active_{1}, drafted_(1) {
  Row& row = rows_.front();
  row.source = source;
  row.tokens = tokens;
  row.prefix = target.encoder_decoder ? 1 : row.length();
  const model::TokenBatch sources;
  const model::EncoderStates encoder;
  const DraftBegin begin{sources, 1, rows_, row.length(), target.encoder_decoder ? &encoder : nullptr, nullptr};
  drafter_.encode(begin);
  drafter_.prefill(begin);
}

DraftRequest DrafterProbe::request() const {
  return {rows_, {}, active_, drafted_};
}

int64_t DrafterProbe::next_token() {
  return drafter_.next_tokens(request()).value().front();
}

at::Tensor DrafterProbe::next_logits() {
  return drafter_.next_logits(request());
}

void DrafterProbe::commit(int64_t token) {
  const std::vector<int64_t> base = {rows_.front().length()};
  rows_.front().tokens.push_back(token);
  drafter_.observe({rows_, model::StepOutput{}, base});
}

}  // namespace draftsmith::infer
