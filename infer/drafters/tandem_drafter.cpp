#include "infer/drafters/tandem_drafter.h"

#include <algorithm>
#include <stdexcept>

#include "base/device_tensors.h"
#include "infer/loop/prefill.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

namespace {

std::unique_ptr<model::DecoderState> transformer_state(std::unique_ptr<model::DecodeState> state) {
  auto* own = dynamic_cast<model::DecoderState*>(state.get());
  if (own == nullptr) throw std::logic_error("a transformer's decode state is of another kind");
  state.release();  // NOLINT(bugprone-unused-return-value)
  return std::unique_ptr<model::DecoderState>(own);
}

}  // namespace

TandemDrafter::TandemDrafter(model::TransformerModel& secondary, int64_t vocabulary)
    : secondary_(secondary), vocabulary_(vocabulary > 0 ? vocabulary : secondary.info().vocabulary) {
  const std::vector<int64_t>& map = secondary.config().tandem.layer_map;
  if (map.empty()) throw std::logic_error("the drafter tandem needs a Tandem secondary");
  layers_ = map;
  std::sort(layers_.begin(), layers_.end());
  layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
  for (const int64_t layer : map) {
    place_.push_back(static_cast<size_t>(std::lower_bound(layers_.begin(), layers_.end(), layer) - layers_.begin()));
  }
}

void TandemDrafter::encode(const DraftBegin& begin) {
  if (secondary_.info().encoder_decoder) encoder_ = secondary_.project_encoder(*begin.target_encoder);
}

void TandemDrafter::prefill(const DraftBegin& begin) {
  if (secondary_.info().encoder_decoder) {
    state_ = transformer_state(secondary_.begin(encoder_, begin.capacity, begin.samples));
    encoder_ = {};
    return;
  }
  const auto samples = static_cast<size_t>(begin.samples);
  std::vector<int64_t> counts;
  for (size_t row = 0; row < begin.rows.size(); row += samples) counts.push_back(begin.rows[row].length() - 1);
  state_ = transformer_state(secondary_.begin(static_cast<int64_t>(counts.size()), begin.capacity));
  append_primary(begin.prompt_hidden, counts);
  repeat_rows(*state_, begin.samples);
}

void TandemDrafter::append_primary(std::span<const at::Tensor> hidden, const std::vector<int64_t>& counts) {
  const int64_t width = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  if (width == 0) return;
  std::vector<at::Tensor> representations;
  for (const size_t place : place_) representations.push_back(hidden[place].narrow(1, 0, width));  // [B,L,D_L]
  secondary_.write_primary(representations, state_->append(counts, width), *state_);
}

at::Tensor TandemDrafter::next_logits(const DraftRequest& request) {
  model::StepInput input;
  input.logits = model::Logits::kLast;
  input.new_tokens.assign(request.active.begin(), request.active.end());
  input.tokens = request.drafted.empty() ? last_tokens(request.rows, secondary_.info().device)
                                         : viewed(request.drafted.back(), {std::ssize(request.rows), 1});  // [B,1]
  input.tokens = known_tokens(input.tokens, secondary_.info(), vocabulary_);
  const at::Tensor logits = secondary_.step(input, *state_).logits;                      // [B,1,V]
  return fit_vocabulary(viewed(logits, {logits.size(0), logits.size(2)}), vocabulary_);  // [B,V]
}

void TandemDrafter::observe(const DraftObservation& observation) {
  std::vector<int64_t> processed;  // by the primary, before its last run
  std::vector<int64_t> counts;     // tokens that this run added
  for (size_t b = 0; b < observation.rows.size(); ++b) {
    const Row& row = observation.rows[b];
    processed.push_back(observation.base[b] - 1);
    counts.push_back(row.finished ? 0 : row.length() - observation.base[b]);
  }
  state_->rollback(processed);
  append_primary(observation.target.hidden, counts);
}

void TandemDrafter::select_rows(std::span<const int64_t> rows) {
  state_->select_rows(rows);
}

}  // namespace draftsmith::infer
