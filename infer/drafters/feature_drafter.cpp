// The drafter `features` (model/models/feature_drafter.h): one or two layers that read the target's hidden states.
// After a verification it reads the target's states of the tokens that stay, in the run that drafts the next token;
// then its own. In block mode that run has masks for the other tokens of the draft.
#include "model/models/feature_drafter.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/device_tensors.h"
#include "infer/drafters/registry.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/loop/rows.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {
namespace {

class FeatureDrafter : public Drafter {
 public:
  // `model` must be a features drafter of the decoding loop's target, have borrowed from it, and outlive the drafter.
  explicit FeatureDrafter(model::TransformerModel& model);

  DrafterTraits traits() const override { return traits_of(DrafterKind::kFeatures); }
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  StepTokens step_tokens(const DraftRequest& request, size_t row) const override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;
  int64_t room(const Row& row) const override { return positions_left(model_.info(), row, false); }
  std::vector<int64_t> target_layers() const override { return model_.config().features.layers; }

 private:
  // Tokens of rows with the states of the tokens before them, as steps read them.
  struct Inputs {
    at::Tensor tokens = {};            // int64 [B,L]
    at::Tensor states = {};            // [B,L,D]
    std::vector<int64_t> counts = {};  // [B]
  };

  // Returns inputs of tokens [from[b], from[b] + counts[b]) of each row; `hidden`: of the tokens before them.
  Inputs inputs_of(std::span<const Row> rows, const std::vector<int64_t>& from, std::vector<int64_t> counts,
                   std::span<const at::Tensor> hidden) const;
  // Adds tokens behind those that no draft has processed.
  void append_unread(const Inputs& added);
  // --- in block mode ---
  // Returns whether a request begins a run.
  bool begins_run(const DraftRequest& request) const;
  // Returns the positions of a row's draft in the run that a request begins.
  int64_t positions_of(const DraftRequest& request, size_t row) const;
  void run_block(const DraftRequest& request);
  model::StepOutput run(const Inputs& inputs, model::Logits logits);

  model::TransformerModel& model_;
  int64_t first_;  // position of a state's first token
  std::array<int64_t, 1> last_layer_;
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecoderState> state_;
  Inputs unread_;      // committed tokens that the state lacks
  at::Tensor output_;  // [B,1,D] of the last step
  at::Tensor block_;   // [n,B,rows] of the head at the positions of the last run, without bias
  int64_t begun_ = 0;  // drafted tokens before that run
};

// Returns a row's last token among [B,L,D]: [B,1,D].
at::Tensor last_of(const at::Tensor& hidden, const std::vector<int64_t>& counts) {
  if (hidden.size(1) == 1) return hidden;
  const auto last = from_each(counts, [](int64_t count) { return std::max<int64_t>(0, count - 1); });
  const at::Tensor index = to_device(last, {std::ssize(last), 1, 1}, hidden.device());
  return hidden.gather(1, index.expand({-1, 1, hidden.size(2)}));
}

// Returns the tokens or states at places [B,L] among those of two parts, [B,M,...] (undefined: none) and [B,N,...].
at::Tensor joined(const at::Tensor& first, const at::Tensor& second, const at::Tensor& places) {
  const at::Tensor both = first.defined() ? at::cat({first, second}, 1) : second;
  return both.dim() == 2 ? both.gather(1, places) : both.gather(1, places.unsqueeze(2).expand({-1, -1, both.size(2)}));
}

at::Tensor selected(const at::Tensor& tensor, std::span<const int64_t> rows) {
  if (!tensor.defined()) return tensor;
  return tensor.index_select(0, to_device(rows, {std::ssize(rows)}, tensor.device()));
}

FeatureDrafter::FeatureDrafter(model::TransformerModel& model)
    : model_(model), first_(model.config().first_position()), last_layer_{model.config().decoder_layers} {
  if (!model.config().reads_features()) throw std::logic_error("the drafter features needs a model of its kind");
}

void FeatureDrafter::encode(const DraftBegin& begin) {
  if (!model_.info().encoder_decoder) return;
  encoder_ = {begin.target_encoder->hidden.to(model_.info().dtype), begin.target_encoder->lengths};
}

void FeatureDrafter::prefill(const DraftBegin& begin) {
  const model::DecodingGuard guard;
  const int64_t capacity = capacity_within(model_.info(), begin.capacity);
  const auto samples = static_cast<size_t>(begin.samples);
  const auto rows = std::ssize(begin.rows);
  std::vector<int64_t> before, last, ones;  // tokens of prompts but the last ones, and these
  for (size_t b = 0; b < begin.rows.size(); ++b) {
    const Row& row = begin.rows[b];
    if (b % samples == 0) before.push_back(room(row) == 0 ? 0 : std::max<int64_t>(0, row.length() - 1 - first_));
    last.push_back(row.length() - 1);
    ones.push_back(room(row) == 0 ? 0 : 1);
  }
  if (model_.info().encoder_decoder) {
    state_ = transformer_state(model_.begin(encoder_, capacity, begin.samples));
    encoder_ = {};
  } else {
    state_ = transformer_state(model_.begin(rows / begin.samples, capacity));
    std::vector<Row> prompts;
    for (size_t b = 0; b < begin.rows.size(); b += samples) prompts.push_back(begin.rows[b]);
    if (any(before)) {
      run(inputs_of(prompts, std::vector<int64_t>(before.size(), first_), before, begin.prompt_hidden),
          model::Logits::kNone);
    }
    repeat_rows(*state_, begin.samples);
  }
  // The last token's state is the prompt's last one; before a first token there is none.
  std::vector<int64_t> prompt;
  for (size_t b = 0; b < last.size(); ++b) prompt.push_back(static_cast<int64_t>(b / samples));
  std::vector<at::Tensor> states;
  for (const at::Tensor& hidden : begin.prompt_hidden) states.push_back(last_of(selected(hidden, prompt), last));
  unread_ = inputs_of(begin.rows, last, ones, states);
}

FeatureDrafter::Inputs FeatureDrafter::inputs_of(std::span<const Row> rows, const std::vector<int64_t>& from,
                                                 std::vector<int64_t> counts,
                                                 std::span<const at::Tensor> hidden) const {
  Inputs inputs{.counts = std::move(counts)};
  const int64_t width = *std::ranges::max_element(inputs.counts);
  if (width == 0) return inputs;
  std::vector<std::span<const int64_t>> tokens;
  for (size_t b = 0; b < rows.size(); ++b) {
    const std::span<const int64_t> all = rows[b].tokens;
    const auto count = static_cast<size_t>(inputs.counts[b]);
    tokens.push_back(count == 0 ? std::span<const int64_t>() : all.subspan(static_cast<size_t>(from[b]), count));
  }
  inputs.tokens = padded(tokens, model_.info().pad, model_.info().device);  // [B,L]
  const auto layers = from_each(hidden, [&](const at::Tensor& layer) { return layer.narrow(1, 0, width); });
  inputs.states = layers.empty() ? at::zeros({std::ssize(rows), width, model_.config().width},
                                             at::TensorOptions(model_.info().dtype).device(model_.info().device))
                                 : model_.project_features(layers);  // [B,L,D]
  for (size_t b = 0; b < rows.size(); ++b) {
    if (inputs.counts[b] > 0 && from[b] == 0) inputs.states[static_cast<int64_t>(b)].select(0, 0).zero_();
  }
  return inputs;
}

model::StepOutput FeatureDrafter::run(const Inputs& inputs, model::Logits logits) {
  const model::StepLayout layout = state_->append(inputs.counts, inputs.tokens.size(1));
  return model_.run_part({.layers = {0, last_layer_[0]},
                          .tokens = inputs.tokens,
                          .hidden = inputs.states,
                          .logits = logits,
                          .hidden_layers = last_layer_},
                         layout, *state_);
}

at::Tensor FeatureDrafter::next_logits(const DraftRequest& request) {
  const model::DecodingGuard guard;
  const model::FeatureShape& shape = model_.config().features;
  if (shape.block) {
    if (begins_run(request)) run_block(request);
    at::Tensor rows = block_[std::ssize(request.drafted) - begun_];  // [B,rows]
    const bool biased = shape.markov_rank > 0 && !request.drafted.empty();
    return model_.logits_of(biased ? rows + model_.markov_rows(request.drafted.back()) : rows);
  }
  Inputs inputs = std::exchange(unread_, {});
  if (!request.drafted.empty()) {
    inputs.tokens = viewed(request.drafted.back(), {std::ssize(request.rows), 1});  // [B,1]
    inputs.states = output_;
    inputs.counts.assign(request.active.begin(), request.active.end());
  }
  if (!inputs.tokens.defined()) throw std::logic_error("nothing was observed since the last draft");
  const model::StepOutput output = run(inputs, model::Logits::kLast);
  output_ = last_of(output.hidden.front(), inputs.counts);
  return viewed(output.logits, {output.logits.size(0), output.logits.size(2)});  // [B,V]
}

bool FeatureDrafter::begins_run(const DraftRequest& request) const {
  return request.drafted.empty() || std::ssize(request.drafted) >= begun_ + block_.size(0);
}

int64_t FeatureDrafter::positions_of(const DraftRequest& request, size_t row) const {
  if (request.active[row] == 0) return 0;
  return std::min(model_.config().features.unrolled, request.limit(row) - std::ssize(request.drafted));
}

// Runs the unread tokens, if the draft begins, and masks behind them. Masks see those before them, so a long window's
// runs give what one run would.
void FeatureDrafter::run_block(const DraftRequest& request) {
  Inputs inputs = std::exchange(unread_, {});
  begun_ = std::ssize(request.drafted);
  if (begun_ == 0 && !inputs.tokens.defined()) throw std::logic_error("nothing was observed since the last draft");
  const int64_t rows = std::ssize(request.rows), columns = begun_ == 0 ? inputs.tokens.size(1) : 0;
  std::vector<int64_t> unread = inputs.counts, positions;
  unread.resize(request.rows.size());
  inputs.counts.clear();
  for (size_t b = 0; b < unread.size(); ++b) {
    positions.push_back(positions_of(request, b));
    inputs.counts.push_back(unread[b] + std::max<int64_t>(0, positions[b] - (begun_ == 0 ? 1 : 0)));
  }
  const int64_t width = *std::ranges::max_element(inputs.counts);
  std::vector<int64_t> places, wanted;  // among unread tokens and a mask [B,L]; with logits, in the run's output [n,B]
  for (const int64_t count : unread) {
    for (int64_t t = 0; t < width; ++t) places.push_back(t < count ? t : columns);
  }
  const int64_t most = *std::ranges::max_element(positions);
  for (int64_t j = 0; j < most; ++j) {
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t first = std::max<int64_t>(0, unread[static_cast<size_t>(b)] - 1);
      wanted.push_back(b * width + std::min(width - 1, first + j));
    }
  }
  const at::Device device = model_.info().device;
  const at::Tensor mask = at::full({rows, 1}, model::kMaskToken, at::TensorOptions(at::kLong).device(device));
  const at::Tensor index = to_device(places, {rows, width}, device);
  inputs.tokens = joined(inputs.tokens, mask, index);                                       // [B,L]
  inputs.states = joined(inputs.states, model_.mask_state().expand({rows, 1, -1}), index);  // [B,L,D]
  const at::Tensor hidden = run(inputs, model::Logits::kNone).hidden.front();               // [B,L,D]
  const at::Tensor read =
      hidden.reshape({rows * width, -1}).index_select(0, to_device(wanted, {std::ssize(wanted)}, device));
  block_ = model_.head_rows(model_.finish(read)).view({most, rows, -1});
}

StepTokens FeatureDrafter::step_tokens(const DraftRequest& request, size_t row) const {
  const int64_t unread = request.drafted.empty() && !unread_.counts.empty() ? unread_.counts[row] : 1;
  if (!model_.config().features.block) return {.processed = unread};
  if (!begins_run(request)) return {0, 0};
  const int64_t positions = positions_of(request, row);
  return {.processed = request.drafted.empty() ? unread + positions - 1 : positions, .logits = positions};
}

void FeatureDrafter::observe(const DraftObservation& observation) {
  const model::DecodingGuard guard;
  if (std::ranges::all_of(observation.rows, &Row::finished)) return;
  std::vector<int64_t> processed, counts;
  for (size_t b = 0; b < observation.rows.size(); ++b) {
    const Row& row = observation.rows[b];
    processed.push_back(observation.base[b] - first_);
    counts.push_back(row.finished || room(row) == 0 ? 0 : row.length() - observation.base[b]);
  }
  state_->rollback(processed);
  // Where nothing was drafted, all drafts being copies, earlier tokens are still unread.
  for (size_t b = 0; b < unread_.counts.size(); ++b) {
    const int64_t behind = processed[b] - state_->length(static_cast<int64_t>(b));
    unread_.counts[b] = std::clamp<int64_t>(behind, 0, unread_.counts[b]);
  }
  Inputs added = inputs_of(observation.rows, {observation.base.begin(), observation.base.end()}, std::move(counts),
                           observation.target.hidden);
  if (!any(unread_.counts)) {
    unread_ = std::move(added);
  } else if (added.tokens.defined()) {
    append_unread(added);
  }
}

void FeatureDrafter::append_unread(const Inputs& added) {
  const int64_t columns = unread_.tokens.size(1), all = columns + added.tokens.size(1);
  const std::vector<int64_t> before = unread_.counts;
  for (size_t b = 0; b < before.size(); ++b) unread_.counts[b] += added.counts[b];
  const int64_t width = *std::ranges::max_element(unread_.counts);
  std::vector<int64_t> places;  // among both [B,L]
  for (const int64_t count : before) {
    for (int64_t t = 0; t < width; ++t) places.push_back(std::min(t < count ? t : columns + t - count, all - 1));
  }
  const at::Tensor index = to_device(places, {std::ssize(before), width}, model_.info().device);
  unread_.tokens = joined(unread_.tokens, added.tokens, index);
  unread_.states = joined(unread_.states, added.states, index);
}

void FeatureDrafter::select_rows(std::span<const int64_t> rows) {
  state_->select_rows(rows);
  unread_.tokens = selected(unread_.tokens, rows);
  unread_.states = selected(unread_.states, rows);
  if (!unread_.counts.empty()) keep_rows(unread_.counts, rows);
}

class LoadedFeatures final : public LoadedStateReader {
 public:
  using LoadedStateReader::LoadedStateReader;

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    drafter().borrow(dynamic_cast<const model::TransformerModel&>(target.model));
    return std::make_unique<FeatureDrafter>(drafter());
  }

  void check(const DraftTarget& target, Problems& problems) const override {
    LoadedStateReader::check(target, problems);
    const model::ModelInfo& read = target.model.info();
    const model::ModelInfo& own = drafter().info();
    if (own.device == read.device && (own.device.is_cpu() || own.dtype == read.dtype)) return;
    problems.add({"drafter " + name(), "this drafter shares the embedding of its target, so both are of one type",
                  std::string(at::toString(read.dtype)) + " on " + read.device.str(),
                  std::string(at::toString(own.dtype)) + " on " + own.device.str(), "leave the drafter's type out"});
  }

 private:
  int64_t block() const override { return drafter().config().features.unrolled; }
  void require_pair(const model::TransformerConfig& target, const model::PairNames& names) const override {
    model::require_feature_pair(drafter().config(), target, names);
  }
};

}  // namespace

SharedDrafter features_drafter(std::shared_ptr<model::TransformerModel> model, const data::Tokenizer* tokenizer,
                               std::filesystem::path directory) {
  return std::make_shared<LoadedFeatures>(std::move(model), tokenizer, std::move(directory));
}

}  // namespace draftsmith::infer
