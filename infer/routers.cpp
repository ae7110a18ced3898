#include "infer/routers.h"

#include <algorithm>

#include <ATen/Dispatch.h>

#include "infer/sampling/row_kernels.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {
namespace {

class WatchedDrafter final : public Drafter {
 public:
  WatchedDrafter(std::unique_ptr<Drafter> inner, RouterCollector& collector)
      : inner_(std::move(inner)), collector_(collector) {}

  DrafterTraits traits() const override { return inner_->traits(); }
  int64_t room(const Row& row) const override { return inner_->room(row); }
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
  StepTokens step_tokens(const DraftRequest& request, size_t row) const override {
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

DrafterSpec parse_router_drafter(const std::string& text, const std::string& where) {
  DrafterSpec spec = parse_drafter(text);
  if (!traits_of(spec.kind).is_model) throw UserError(router_needs_model(where, text));
  return spec;
}

const model::TransformerModel& router_embeddings(const LoadedDrafter* drafter, const std::string& where,
                                                 const std::string& name) {
  const model::TransformerModel* embeddings = drafter == nullptr ? nullptr : drafter->transformer();
  // A features drafter borrows its target's.
  if (embeddings == nullptr || embeddings->config().reads_features()) throw UserError(router_needs_model(where, name));
  return *embeddings;
}

std::unique_ptr<model::RouterPredictor> load_router(const std::filesystem::path& directory,
                                                    const LoadedDrafter* drafter, const std::string& where,
                                                    const std::string& name) {
  const model::Router router = model::load_router(directory);
  const model::TransformerModel& embeddings = router_embeddings(drafter, where, name);
  model::require_router_fits(router, directory, drafter->path());
  return std::make_unique<model::RouterPredictor>(router, embeddings);
}

DraftParts RouterCollector::around(DraftParts parts, std::vector<int64_t> eos) {
  eos_ = std::move(eos);
  return {std::make_unique<WatchedDrafter>(std::move(parts.drafter), *this), std::move(parts.window),
          std::make_unique<WatchedRule>(std::move(parts.acceptance),
                                        [this](const Verification& verification, const Judgement& judgement) {
                                          judged(verification, judgement.accepted);
                                        })};
}

void RouterCollector::keep_last() {
  if (!window_.empty() && !window_.back().is_cpu()) window_.back() = window_.back().clone();
}

void RouterCollector::drafted(const at::Tensor& logits, bool first_of_window) {
  if (first_of_window) window_.clear();
  window_.push_back(logits);
}

template <class T>
void RouterCollector::add(const Row& row, const T* q, const T* p, int64_t vocabulary, bool rejected) {
  data::RouterRows& rows = texts_[row.line];
  std::vector<float> probabilities(static_cast<size_t>(top_k_));
  std::vector<int64_t> ids(probabilities.size());
  rows.entropy.push_back(static_cast<float>(router_features(q, vocabulary, std::span(probabilities), std::span(ids))));
  rows.probabilities.insert(rows.probabilities.end(), probabilities.begin(), probabilities.end());
  for (const int64_t id : ids) rows.ids.push_back(static_cast<int32_t>(id));
  rows.disagreement.push_back(static_cast<float>(total_variation(q, p, vocabulary)));
  rows.rejected.push_back(rejected ? 1 : 0);
  rows.examples.push_back(static_cast<int32_t>(row.line));
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
      for (int64_t j = 0; j < examined; ++j) {
        const auto* q = drafter[static_cast<size_t>(j)].const_data_ptr<scalar_t>() + at_row * vocabulary;
        const auto* p = target.const_data_ptr<scalar_t>() + (at_row * target.size(1) + j) * vocabulary;
        add(row, q, p, vocabulary, j == lengths[b]);
      }
    }
  });
}

data::RouterRows RouterCollector::drain() {
  data::RouterRows rows;
  const auto append = [](auto& values, const auto& more) { values.insert(values.end(), more.begin(), more.end()); };
  for (const auto& [line, text] : texts_) {
    append(rows.entropy, text.entropy);
    append(rows.probabilities, text.probabilities);
    append(rows.ids, text.ids);
    append(rows.disagreement, text.disagreement);
    append(rows.rejected, text.rejected);
    append(rows.examples, text.examples);
  }
  texts_.clear();
  return rows;
}

}  // namespace draftsmith::infer
