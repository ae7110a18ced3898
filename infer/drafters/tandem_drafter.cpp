#include "infer/drafters/tandem_drafter.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/core/grad_mode.h>

#include "base/device.h"
#include "base/device_tensors.h"
#include "base/timing.h"
#include "infer/costs/step_costs.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "model/models/tandem.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {

std::unique_ptr<model::DecoderState> transformer_state(std::unique_ptr<model::DecodeState> state) {
  auto* own = dynamic_cast<model::DecoderState*>(state.get());
  if (own == nullptr) throw std::logic_error("a transformer's decode state is of another kind");
  state.release();  // NOLINT(bugprone-unused-return-value)
  return std::unique_ptr<model::DecoderState>(own);
}

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
  secondary_.give_back(std::move(state_));
  const int64_t capacity = capacity_within(secondary_.info(), begin.capacity);
  if (secondary_.info().encoder_decoder) {
    state_ = transformer_state(secondary_.begin(encoder_, capacity, begin.samples));
    encoder_ = {};
    return;
  }
  const auto samples = static_cast<size_t>(begin.samples);
  std::vector<int64_t> counts;
  for (size_t b = 0; b < begin.rows.size(); b += samples) {
    counts.push_back(room(begin.rows[b]) == 0 ? 0 : begin.rows[b].length() - 1);
  }
  state_ = transformer_state(secondary_.begin(static_cast<int64_t>(counts.size()), capacity));
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
    counts.push_back(row.finished || room(row) == 0 ? 0 : row.length() - observation.base[b]);
  }
  state_->rollback(processed);
  append_primary(observation.target.hidden, counts);
}

void TandemDrafter::select_rows(std::span<const int64_t> rows) {
  state_->select_rows(rows);
}

namespace {

// A drafter whose target has processed the prefix. Each draft begins from the prefix's last token.
class TimedReader final : public TimedRow {
 public:
  TimedReader(Drafter& drafter, const TimedModel& primary, const CalibrationContext& context, int64_t room)
      : TimedRow(drafter, context) {
    rows_[0].tokens = {committed_.front()};
    const model::TokenBatch nothing;
    const DraftBegin begin{nothing, 1, rows_, std::ssize(committed_) + room, primary.encoder(), nullptr};
    drafter.encode(begin);
    drafter.prefill(begin);
    rows_[0].tokens = committed_;
    drafter.observe({rows_, primary.output(), std::vector<int64_t>{1}});
    for (const at::Tensor& hidden : primary.output().hidden) {
      last_.hidden.push_back(hidden.narrow(1, std::ssize(context.prefix) - 1, 1).clone());
    }
  }

  void go_back() override {
    TimedRow::go_back();
    drafter_.observe({rows_, last_, std::vector<int64_t>{std::ssize(committed_) - 1}});
  }

  // The drafter also reads the target's states.
  double verify(TimedModel& target, int64_t tokens) override {
    const double verified = target.run(tokens);
    if (tokens == 1) return verified;
    const at::Device device = target.output().logits.device();
    const std::vector<int64_t> base{std::ssize(committed_)};
    rows_[0].tokens.insert(rows_[0].tokens.end(), static_cast<size_t>(tokens), committed_.back());
    synchronize(device);
    const Stopwatch watch;
    drafter_.observe({rows_, target.output(), base});
    synchronize(device);
    return verified + watch.seconds();
  }

 private:
  model::StepOutput last_;  // the target's states of the prefix's last token
};

// A batch of texts that a drafter predicts block by block; its drafts are the texts' own tokens.
class ForcedReader {
 public:
  ForcedReader(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& texts)
      : forcing_(target, texts), drafter_(drafter), outputs_(texts.outputs), rows_(texts.outputs.size()) {
    const bool encodes = target.info().encoder_decoder;
    int64_t capacity = 1;
    for (size_t b = 0; b < rows_.size(); ++b) {
      rows_[b] = row_before_output(texts.sources[b], encodes, target.info().decoder_start);
      capacity = std::max(capacity, rows_[b].length() + std::ssize(outputs_[b]));
    }
    const model::TokenBatch nothing;
    const DraftBegin begin{
        nothing, 1, rows_, capacity, encodes ? &forcing_.encoder() : nullptr, nullptr, forcing_.prompt_hidden()};
    drafter_.encode(begin);
    drafter_.prefill(begin);
  }

  // Adds the next `width` positions.
  void add_block(int64_t width, AlphaSums& sums) {
    const std::vector<int64_t> valid = forcing_.valid(width);
    const model::StepOutput target = forcing_.next_output(width);
    sums.add({target.logits, draft(valid, width)}, labels_of(outputs_, from_each(rows_, &Row::emitted), valid, width));
    std::vector<int64_t> base;
    for (size_t b = 0; b < rows_.size(); ++b) {
      Row& row = rows_[b];
      base.push_back(row.length());
      const auto next = outputs_[b].begin() + row.emitted();
      row.tokens.insert(row.tokens.end(), next, next + valid[b]);
    }
    drafter_.observe({rows_, target, base});
  }

  int64_t longest() const { return forcing_.longest(); }

 private:
  // The drafter's logits [B,L,V], each row's up to valid[b].
  at::Tensor draft(std::span<const int64_t> valid, int64_t width) {
    std::vector<at::Tensor> drafted;
    std::vector<at::Tensor> logits;
    for (int64_t j = 0; j < width; ++j) {
      std::vector<int64_t> active;
      std::vector<int64_t> tokens;  // drafted at j
      for (size_t b = 0; b < rows_.size(); ++b) {
        active.push_back(j < valid[b] ? 1 : 0);
        tokens.push_back(active[b] == 0 ? 0 : outputs_[b][static_cast<size_t>(rows_[b].emitted() + j)]);
      }
      const at::Tensor step = drafter_.next_logits({rows_, drafted, active, {}, valid});
      logits.push_back(step.is_cpu() ? step : step.clone());  // elsewhere the next step may overwrite it
      drafted.push_back(to_device(tokens, {forcing_.rows()}, logits.back().device()));
    }
    return at::stack(logits, 1);
  }

  TeacherForcing forcing_;
  Drafter& drafter_;
  std::span<const std::vector<int64_t>> outputs_;
  std::vector<Row> rows_;
};

class LoadedTandem final : public LoadedStateReader {
 public:
  using LoadedStateReader::LoadedStateReader;

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    return std::make_unique<TandemDrafter>(drafter(), target.model.info().vocabulary);
  }

 private:
  int64_t block() const override { return drafter().config().tandem.block; }
  void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const override {
    model::require_tandem_pair(drafter().config(), target, names);
  }
};

}  // namespace

StepCosts LoadedStateReader::step_costs(const DraftTarget& target, const CalibrationContext& context,
                                        int64_t max_tokens) const {
  const model::DecodingGuard guard;
  const std::unique_ptr<Drafter> reader = make(target);
  TimedModel verifier(target.model, context, max_tokens, reader->target_layers());
  TimedReader timed(*reader, verifier, context, max_tokens);
  return measure_rounds(verifier, timed, max_tokens);
}

ForcedAlpha LoadedStateReader::forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                                            int64_t block_or_none) const {
  const at::NoGradGuard no_grad;
  const int64_t width = block_or_none > 0 ? block_or_none : block();
  const std::unique_ptr<Drafter> reader = make(target);
  AlphaSums sums(warping);
  const ReadableTexts readable = readable_texts(drafter().info(), texts, false);
  const ForcedBatch all{readable.sources, readable.outputs, reader->target_layers()};
  for_each_batch(all, kForcedRows, [&](const ForcedBatch& batch) {
    ForcedReader forced(target.model, *reader, batch);
    for (int64_t done = 0; done < forced.longest(); done += width) {
      forced.add_block(std::min(width, forced.longest() - done), sums);
    }
  });
  return sums.mean();
}

SharedDrafter tandem_drafter(std::shared_ptr<model::TransformerModel> secondary, const data::Tokenizer* tokenizer,
                             std::filesystem::path directory) {
  return std::make_shared<LoadedTandem>(std::move(secondary), tokenizer, std::move(directory));
}

}  // namespace draftsmith::infer
