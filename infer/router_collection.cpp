#include "infer/router_collection.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/Dispatch.h>

#include "infer/sampling/draft_features.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

class WatchedDrafter final : public Drafter {
 public:
  WatchedDrafter(std::unique_ptr<Drafter> inner, RouterCollector& collector)
      : inner_(std::move(inner)), collector_(collector) {}

  DrafterTraits traits() const override { return inner_->traits(); }
  void encode(const DraftBegin& begin) override { inner_->encode(begin); }
  void prefill(const DraftBegin& begin) override { inner_->prefill(begin); }
  at::Tensor next_logits(const DraftRequest& request) override {
    collector_.keep_last();
    at::Tensor logits = inner_->next_logits(request);
    collector_.drafted(logits, request.drafted.empty());
    return logits;
  }
  model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                               model::DecodeState& state) override {
    return inner_->run_target(target, input, state);
  }
  int64_t step_tokens(const DraftRequest& request, size_t row) const override {
    return inner_->step_tokens(request, row);
  }
  void count_layers(const CountedRound& round, DecodeStats& stats) const override {
    inner_->count_layers(round, stats);
  }
  void observe(const DraftObservation& observation) override { inner_->observe(observation); }
  void select_rows(std::span<const int64_t> rows) override { inner_->select_rows(rows); }
  std::vector<int64_t> target_layers() const override { return inner_->target_layers(); }

 private:
  std::unique_ptr<Drafter> inner_;
  RouterCollector& collector_;
};

class WatchedAcceptance final : public AcceptanceRule {
 public:
  WatchedAcceptance(std::unique_ptr<AcceptanceRule> inner, RouterCollector& collector)
      : inner_(std::move(inner)), collector_(collector) {}

  AcceptanceTraits traits() const override {
    AcceptanceTraits traits = inner_->traits();
    traits.on_device = false;  // what is watched is kept
    return traits;
  }
  Judgement judge(const Verification& verification) override {
    Judgement judgement = inner_->judge(verification);
    collector_.judged(verification, judgement.accepted);
    return judgement;
  }

 private:
  std::unique_ptr<AcceptanceRule> inner_;
  RouterCollector& collector_;
};

// Returns 1 - sum min(p, q), where p and q are the softmax of the logits.
template <class T>
double total_variation(const T* a, const T* b, int64_t vocabulary) {
  std::vector<T> p(static_cast<size_t>(vocabulary));
  std::vector<T> q(static_cast<size_t>(vocabulary));
  row_warp(a, vocabulary, {}, p.data());
  row_warp(b, vocabulary, {}, q.data());
  return std::clamp(1 - row_overlap(p.data(), q.data(), vocabulary), 0.0, 1.0);
}

}  // namespace

DraftParts RouterCollector::around(DraftParts parts, std::vector<int64_t> eos) {
  eos_ = std::move(eos);
  return {std::make_unique<WatchedDrafter>(std::move(parts.drafter), *this), std::move(parts.window),
          std::make_unique<WatchedAcceptance>(std::move(parts.acceptance), *this)};
}

void RouterCollector::keep_last() {
  if (!window_.empty() && !window_.back().is_cpu()) window_.back() = window_.back().clone();
}

void RouterCollector::drafted(const at::Tensor& logits, bool first_of_window) {
  if (first_of_window) window_.clear();
  window_.push_back(logits);
}

DraftHistory& RouterCollector::history_of(const Row& row) {
  DraftHistory& history = histories_[{row.line, row.output}];
  if (row.emitted() == 0) history = DraftHistory(std::ssize(row.input()));
  return history;
}

template <class T>
void RouterCollector::add(const Row& row, int64_t index, const T* q, const T* p, int64_t vocabulary) {
  Position position{.line = static_cast<int64_t>(row.line), .index = row.emitted() + index};
  position.probabilities.resize(static_cast<size_t>(top_k_));
  position.ids.resize(static_cast<size_t>(top_k_));
  position.entropy =
      static_cast<float>(router_features(q, vocabulary, std::span(position.probabilities), std::span(position.ids)));
  position.context = histories_.at({row.line, row.output}).context(index);
  position.disagreement = static_cast<float>(total_variation(q, p, vocabulary));
  positions_.push_back(std::move(position));
}

void RouterCollector::judged(const Verification& verification, const at::Tensor& accepted) {
  const auto lengths = to_host(accepted);
  const auto counts = to_host(verification.counts);
  const auto tokens = to_host(verification.tokens);  // [B,G]
  // Compares half types in single precision, and always on the host: collecting is not timed.
  const auto type = verification.logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor target = verification.logits.to(at::kCPU, type).contiguous();  // [B,G+1,V]
  std::vector<at::Tensor> drafter;
  for (const at::Tensor& logits : window_) drafter.push_back(logits.to(at::kCPU, type).contiguous());
  window_.clear();
  const int64_t vocabulary = target.size(2);
  AT_DISPATCH_FLOATING_TYPES(type, "router_collection", [&] {
    for (size_t b = 0; b < verification.rows.size(); ++b) {
      const Row& row = verification.rows[b];
      const auto at_row = static_cast<int64_t>(b);
      const int64_t* drafted = tokens.data() + at_row * verification.tokens.size(1);
      const int64_t* end = std::find_first_of(drafted, drafted + counts[b], eos_.begin(), eos_.end());
      if (row.finished) continue;
      const int64_t until_eos = std::min(counts[b], end - drafted + 1);
      const int64_t examined = std::min(lengths[b] + 1, until_eos);
      DraftHistory& history = history_of(row);
      for (int64_t j = 0; j < examined; ++j) {
        const auto* q = drafter[static_cast<size_t>(j)].const_data_ptr<scalar_t>() + at_row * vocabulary;
        const auto* p = target.const_data_ptr<scalar_t>() + (at_row * target.size(1) + j) * vocabulary;
        add(row, j, q, p, vocabulary);
        positions_.back().rejected = j == lengths[b];
      }
      const int64_t kept = std::min(lengths[b], until_eos);
      history.observe({.drafted = until_eos, .accepted = kept, .emitted = row.emitted() + kept + 1});
    }
  });
}

data::RouterRows RouterCollector::drain() {
  std::stable_sort(positions_.begin(), positions_.end(), [](const Position& a, const Position& b) {
    return std::tie(a.line, a.index) < std::tie(b.line, b.index);
  });
  data::RouterRows rows;
  for (const Position& position : positions_) {
    rows.entropy.push_back(position.entropy);
    rows.probabilities.insert(rows.probabilities.end(), position.probabilities.begin(), position.probabilities.end());
    for (const int64_t id : position.ids) rows.ids.push_back(static_cast<int32_t>(id));
    rows.context.insert(rows.context.end(), position.context.begin(), position.context.end());
    rows.disagreement.push_back(position.disagreement);
    rows.rejected.push_back(position.rejected ? 1 : 0);
    rows.examples.push_back(static_cast<int32_t>(position.line));
  }
  positions_.clear();
  histories_.clear();
  return rows;
}

}  // namespace draftsmith::infer
