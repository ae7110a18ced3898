#include "infer/inside/ppd.h"

#include <algorithm>
#include <stdexcept>

#include "infer/inside/ppd_account.h"
#include "infer/inside/ppd_candidates.h"
#include "infer/inside/ppd_sides.h"
#include "infer/loop/vocabulary.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::infer {
namespace {

// What runs ahead of the next token.
struct Branches {
  std::vector<std::vector<int64_t>> tokens;  // [B]
  model::StepLayout layout;
  at::Tensor input;   // [B,n], the rows' tokens, padded
  at::Tensor hidden;  // [B,n,D] after layer d - d-bar

  bool any() const { return layout.tokens > 0; }
};

// Rows that have a token to come after the next one.
bool goes_on(const Row& row) {
  return !row.finished && row.remaining() >= 2;
}

// In the state's caches the last committed token of a row is at position p. A row resumes where a branch of that token
// was kept: its layers [0,s) have p + 1 tokens, s = d - d-bar, and all others p; else all layers have p.
class PpdLoop {
 public:
  PpdLoop(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
          const DecodeSettings& settings)
      : target_(target),
        exits_(exits),
        ppd_(ppd),
        settings_(settings),
        account_(target.info().layers, ppd.early_layer),
        sides_(ppd.execution, target.info().device) {}

  void run(RowBatch& batch, PhaseTimer& timer) {
    resumes_.assign(batch.rows.size(), false);
    while (!batch.rows.empty()) {
      round(batch, timer);
      keep(batch.remove_finished());
    }
  }

 private:
  static model::DecoderState& state(const RowBatch& batch) { return dynamic_cast<model::DecoderState&>(*batch.state); }

  void round(RowBatch& batch, PhaseTimer& timer);
  model::StepLayout layout(const RowBatch& batch, model::LayerRange layers) const;
  at::Tensor first_layers(const RowBatch& batch) const;
  Branches predict(const RowBatch& batch, const at::Tensor& hidden) const;
  bool make_independent(const RowBatch& batch, const Branches& branches) const;
  void select(RowBatch& batch, const Branches& branches, std::span<const int64_t> next);
  void keep(std::span<const int64_t> rows);

  model::TransformerModel& target_;
  const model::Exits* exits_;
  const PpdSettings& ppd_;
  const DecodeSettings& settings_;
  PpdAccount account_;
  PpdSides sides_;
  std::vector<bool> resumes_;  // [B]
  at::Tensor resumed_;         // [B,1,D] after layer s; undefined: no row resumes
};

// Of each row's last token: only of rows that do not resume where the layers are the first ones.
model::StepLayout PpdLoop::layout(const RowBatch& batch, model::LayerRange layers) const {
  std::vector<int64_t> new_tokens;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    new_tokens.push_back(batch.rows[b].finished || (layers.begin == 0 && resumes_[b]) ? 0 : 1);
  }
  return state(batch).append(new_tokens, 1, layers.begin);
}

// Layers [0,s) of the rows' last tokens, or what a branch kept of them. [B,1,D]
at::Tensor PpdLoop::first_layers(const RowBatch& batch) const {
  const auto first = layout(batch, {0, account_.ahead()});
  if (std::ranges::all_of(first.new_tokens, [](int64_t count) { return count == 0; })) return resumed_;
  std::vector<int64_t> last;
  for (const Row& row : batch.rows) last.push_back(row.tokens.back());
  const at::Device device = target_.info().device;
  const auto rows = static_cast<int64_t>(batch.rows.size());
  const at::Tensor embedded = target_.embed(to_device(last, {rows, 1}, device), first);
  const at::Tensor hidden = target_.run_layers({0, account_.ahead()}, embedded, first, state(batch));
  if (!resumed_.defined()) return hidden;
  const std::vector<int64_t> resumes(resumes_.begin(), resumes_.end());
  return at::where(to_device(resumes, {rows, 1, 1}, device).to(at::kBool), resumed_, hidden);
}

// The branches of the tokens that the hidden states after layer d-bar [B,1,D] predict, not yet run: none that would end
// its row.
Branches PpdLoop::predict(const RowBatch& batch, const at::Tensor& hidden) const {
  Branches branches;
  branches.tokens.resize(batch.rows.size());
  if (std::ranges::none_of(batch.rows, goes_on)) return branches;
  at::Tensor logits = model::exit_logits(target_, exits_, ppd_.early_layer, hidden);  // [B,1,V]
  mask_padding(logits, settings_.ids);
  if (!settings_.processors.empty()) {
    const std::vector<std::vector<int64_t>> nothing(batch.rows.size());
    settings_.processors.apply(logits, {batch.rows, nothing, 0});
  }
  branches.tokens = most_likely_tokens(logits.squeeze(1), ppd_.candidates);
  size_t most = 0;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    auto& tokens = branches.tokens[b];
    if (!goes_on(batch.rows[b])) tokens.clear();
    std::erase_if(tokens, [&](int64_t token) { return std::ranges::count(settings_.eos, token) > 0; });
    most = std::max(most, tokens.size());
  }
  if (most == 0) return branches;
  const auto count = static_cast<int64_t>(most);
  branches.layout = state(batch).siblings(count, 0);
  std::vector<int64_t> input;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    const auto& tokens = branches.tokens[b];
    branches.layout.new_tokens[b] = std::ssize(tokens);
    input.insert(input.end(), tokens.begin(), tokens.end());
    input.insert(input.end(), most - tokens.size(), batch.rows[b].tokens.back());
  }
  branches.input = to_device(input, {std::ssize(batch.rows), count}, target_.info().device);
  return branches;
}

// Sees to it that both sides may run at the same time; false: they may not. They run other layers (d-bar >= s), and
// what layers write of the state belongs to one layer each: caches, lengths, counts of runs. What all layers read are
// the tables of positions, which grow when a layout needs more: they did for the last token in layers [s,d-bar), and an
// empty range of layers does it now for the branches. Weights and rows are only read. On a GPU caches must not grow
// either, as branches beyond the capacity make them: memory that one stream gives back is taken again without waiting
// for the other.
bool PpdLoop::make_independent(const RowBatch& batch, const Branches& branches) const {
  target_.run_layers({0, 0}, branches.input, branches.layout, state(batch));
  if (target_.info().device.is_cpu()) return true;
  const auto longest = *std::ranges::max_element(branches.layout.base);
  return longest + branches.layout.tokens <= state(batch).capacity();
}

void PpdLoop::round(RowBatch& batch, PhaseTimer& timer) {
  model::DecoderState& caches = state(batch);
  const int64_t ahead = account_.ahead();
  timer.enter(Phase::kVerify);
  at::Tensor hidden = first_layers(batch);
  const auto last = layout(batch, {ahead, target_.info().layers});
  hidden = target_.run_layers({ahead, ppd_.early_layer}, hidden, last, caches);
  timer.enter(Phase::kDraft);
  Branches branches = predict(batch, hidden);
  std::vector<int64_t> next;
  const PpdSide branch = [&] {
    const at::Tensor embedded = target_.embed(branches.input, branches.layout);
    branches.hidden = target_.run_layers({0, ahead}, embedded, branches.layout, caches);
  };
  const PpdSide main = [&] {
    timer.enter(Phase::kVerify);
    const at::Tensor after = target_.run_layers({ppd_.early_layer, target_.info().layers}, hidden, last, caches);
    next = choose_next(batch, target_.exit_head(after).squeeze(1), settings_);
  };
  if (!branches.any()) {
    main();
  } else if (make_independent(batch, branches)) {
    sides_.run(branch, main);
  } else {
    PpdSides::run_in_turn(branch, main);
  }
  timer.enter(Phase::kOther);
  batch.add_time(timer.take());
  select(batch, branches, next);
}

// Commits the next tokens. Their branches are kept, all others dropped.
void PpdLoop::select(RowBatch& batch, const Branches& branches, std::span<const int64_t> next) {
  std::vector<int64_t> chosen(batch.rows.size(), -1);
  std::vector<bool> finished;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    const auto& tokens = branches.tokens[b];
    const auto found = std::ranges::find(tokens, next[b]);
    if (found != tokens.end()) chosen[b] = found - tokens.begin();
    finished.push_back(batch.rows[b].finished);
  }
  commit_next(batch, next, settings_);
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    if (finished[b]) continue;
    Row& row = batch.rows[b];
    account_.count({resumes_[b], std::ssize(branches.tokens[b]), !row.finished, chosen[b] >= 0}, row.stats);
    resumes_[b] = chosen[b] >= 0;
  }
  resumed_ = at::Tensor();
  if (std::ranges::none_of(chosen, [](int64_t branch) { return branch >= 0; })) return;
  state(batch).select_branch({0, account_.ahead()}, branches.layout, chosen);
  for (int64_t& branch : chosen) branch = std::max<int64_t>(branch, 0);
  const auto index = to_device(chosen, {std::ssize(chosen), 1, 1}, target_.info().device);
  resumed_ = branches.hidden.gather(1, index.expand({-1, 1, branches.hidden.size(2)}));
}

// After rows left the batch.
void PpdLoop::keep(std::span<const int64_t> rows) {
  if (rows.empty()) return;
  std::vector<bool> kept;
  for (const int64_t row : rows) kept.push_back(resumes_[static_cast<size_t>(row)]);
  resumes_ = std::move(kept);
  if (resumed_.defined()) {
    resumed_ = resumed_.index_select(0, to_device(rows, {std::ssize(rows)}, target_.info().device));
  }
}

}  // namespace

PpdExecution fastest_execution(at::Device /*device*/) {
  return PpdExecution::kBatched;
}

void decode_ppd(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
                const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  const int64_t layers = target.info().layers;
  if (2 * ppd.early_layer < layers || ppd.early_layer < 1 || ppd.early_layer >= layers) {
    throw std::logic_error("PPD predicts early at one of the layers d/2 .. d-1");
  }
  if (ppd.candidates < 1 || ppd.candidates > target.info().vocabulary) {
    throw std::logic_error("PPD has 1 to V candidates");
  }
  if (!settings.warping.greedy()) throw std::logic_error("PPD decodes greedily");
  PpdLoop(target, exits, ppd, settings).run(batch, timer);
}

}  // namespace draftsmith::infer
