#include <algorithm>

#include <ATen/Dispatch.h>

#include "infer/loop/decode_loop.h"
#include "infer/sampling/row_kernels.h"
#include "infer/self_drafting/methods.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::infer {

void count_run(int64_t layers, int64_t early_layer, const PpdRun& run, DecodeStats& stats) {
  const int64_t latency = run.resumed ? early_layer : layers;
  const int64_t compute = latency + run.branches * (layers - early_layer);
  stats.latency_units += latency;
  stats.compute_units += compute;
  stats.layer_runs += compute;
  if (!run.followed) return;
  ++stats.early_predictions;
  stats.early_matches += run.matched ? 1 : 0;
}

namespace {

// Candidates for the next token and their runs through the first layers.
struct Branches {
  std::vector<std::vector<int64_t>> tokens;  // [B]
  model::StepLayout layout;
  at::Tensor input;   // [B,n], the rows' tokens, padded
  at::Tensor hidden;  // [B,n,D] after layer d - d-bar

  bool any() const { return layout.tokens > 0; }
};

// Returns whether the row has room for a token after the next one.
bool has_second_token(const Row& row) {
  return !row.finished && row.remaining() >= 2;
}

// A row resumes if a branch of its last committed token was kept. With that token at position p of the caches and
// s = d - d-bar, layers [0,s) of such a row hold p + 1 tokens and all others p. If a row does not resume, all layers
// hold p.
class PpdLoop {
 public:
  PpdLoop(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
          const DecodeSettings& settings)
      : target_(target),
        exits_(exits),
        ppd_(ppd),
        settings_(settings),
        ahead_(target.info().layers - ppd.early_layer) {}

  void run(RowBatch& batch, PhaseTimer& timer) {
    resumes_.assign(batch.rows.size(), 0);
    while (batch.goes_on()) {
      round(batch, timer);
      select_rows(batch.remove_finished());
    }
  }

 private:
  static model::DecoderState& state(const RowBatch& batch) { return dynamic_cast<model::DecoderState&>(*batch.state); }

  // Returns the layout of the rows' last tokens. Rows that resume have run the first layers already.
  model::StepLayout layout(const RowBatch& batch, model::LayerRange layers) const {
    std::vector<int64_t> new_tokens;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      new_tokens.push_back(batch.rows[b].finished || (layers.begin == 0 && resumes_[b] != 0) ? 0 : 1);
    }
    return state(batch).append(new_tokens, 1, layers.begin);
  }

  // Runs layers [0,s) of the rows' last tokens, or returns what a kept branch computed. [B,1,D]
  at::Tensor first_layers(const RowBatch& batch) const {
    const auto first = layout(batch, {0, ahead_});
    if (std::ranges::all_of(first.new_tokens, [](int64_t count) { return count == 0; })) return resumed_;
    const at::Device device = target_.info().device;
    const at::Tensor embedded = target_.embed(last_tokens(batch.rows, device), first);
    const at::Tensor hidden = target_.run_layers({0, ahead_}, embedded, first, state(batch));
    if (!resumed_.defined()) return hidden;
    return at::where(to_device(resumes_, {std::ssize(resumes_), 1, 1}, device).to(at::kBool), resumed_, hidden);
  }

  // Returns branches, not yet run, for the tokens that the hidden states after layer d-bar [B,1,D] predict. Tokens that
  // would end their row get no branch.
  Branches predict(const RowBatch& batch, const at::Tensor& hidden) const {
    Branches branches;
    branches.tokens.resize(batch.rows.size());
    if (std::ranges::none_of(batch.rows, has_second_token)) return branches;
    at::Tensor logits = model::exit_logits(target_, exits_, ppd_.early_layer, hidden);  // [B,1,V]
    settings_.process(logits, {batch.rows});
    branches.tokens = most_likely_tokens(logits.squeeze(1), ppd_.candidates);
    size_t most = 0;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      auto& tokens = branches.tokens[b];
      if (!has_second_token(batch.rows[b])) tokens.clear();
      std::erase_if(tokens, [&](int64_t token) { return std::ranges::count(settings_.eos, token) > 0; });
      most = std::max(most, tokens.size());
    }
    if (most == 0) return branches;
    const auto count = static_cast<int64_t>(most);
    std::vector<int64_t> counts;
    std::vector<int64_t> input;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      const auto& tokens = branches.tokens[b];
      counts.push_back(std::ssize(tokens));
      input.insert(input.end(), tokens.begin(), tokens.end());
      input.insert(input.end(), most - tokens.size(), batch.rows[b].tokens.back());
    }
    branches.layout = state(batch).siblings(counts, count);
    branches.input = to_device(input, {std::ssize(batch.rows), count}, target_.info().device);
    return branches;
  }

  void round(RowBatch& batch, PhaseTimer& timer) {
    model::DecoderState& caches = state(batch);
    timer.enter(Phase::kVerify);
    at::Tensor hidden = first_layers(batch);
    const auto last = layout(batch, {ahead_, target_.info().layers});
    hidden = target_.run_layers({ahead_, ppd_.early_layer}, hidden, last, caches);
    timer.enter(Phase::kDraft);
    Branches branches = predict(batch, hidden);
    if (branches.any()) {
      const at::Tensor embedded = target_.embed(branches.input, branches.layout);
      branches.hidden = target_.run_layers({0, ahead_}, embedded, branches.layout, caches);
    }
    timer.enter(Phase::kVerify);
    hidden = target_.run_layers({ppd_.early_layer, target_.info().layers}, hidden, last, caches);
    const std::vector<int64_t> next = choose_next(batch, target_.exit_head(hidden).squeeze(1), settings_);
    timer.enter(Phase::kOther);
    commit(batch, branches, next);
    batch.share_time(timer);
  }

  // Commits the next tokens, keeps their branches and drops all others.
  void commit(RowBatch& batch, const Branches& branches, std::span<const int64_t> next) {
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
      count_run(target_.info().layers, ppd_.early_layer,
                {resumes_[b] != 0, std::ssize(branches.tokens[b]), !row.finished, chosen[b] >= 0}, row.stats);
      resumes_[b] = chosen[b] >= 0 ? 1 : 0;
    }
    resumed_ = at::Tensor();
    if (std::ranges::none_of(chosen, [](int64_t branch) { return branch >= 0; })) return;
    state(batch).select_branch({0, ahead_}, branches.layout, chosen);
    for (int64_t& branch : chosen) branch = std::max<int64_t>(branch, 0);
    const auto index = to_device(chosen, {std::ssize(chosen), 1, 1}, target_.info().device);
    resumed_ = branches.hidden.gather(1, index.expand({-1, 1, branches.hidden.size(2)}));
  }

  // Keeps only the given rows after others left the batch; none given: nothing changed.
  void select_rows(std::span<const int64_t> rows) {
    if (rows.empty()) return;
    keep_rows(resumes_, rows);
    if (resumed_.defined()) {
      resumed_ = resumed_.index_select(0, to_device(rows, {std::ssize(rows)}, target_.info().device));
    }
  }

  model::TransformerModel& target_;
  const model::Exits* exits_;
  const PpdSettings& ppd_;
  const DecodeSettings& settings_;
  int64_t ahead_;                 // s = d - d-bar
  std::vector<int64_t> resumes_;  // [B] flags
  at::Tensor resumed_;            // [B,1,D] after layer s; undefined: no row resumes
};

}  // namespace

std::vector<std::vector<int64_t>> most_likely_tokens(const at::Tensor& logits, int64_t k) {
  std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(logits.size(0)));
  const at::Tensor rows = promoted(logits).cpu().contiguous();
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "most_likely_tokens", [&] {
    const auto* row = rows.const_data_ptr<scalar_t>();
    for (auto& best : tokens) {
      best.resize(static_cast<size_t>(k));
      best.resize(static_cast<size_t>(row_top(row, rows.size(1), k, best.data())));
      row += rows.size(1);
    }
  });
  return tokens;
}

void decode_ppd(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
                const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  PpdLoop(target, exits, ppd, settings).run(batch, timer);
}

}  // namespace draftsmith::infer
