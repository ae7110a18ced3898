#include "infer/routers.h"

#include <algorithm>

#include <ATen/Dispatch.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/sampling/row_kernels.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {
namespace {

// Windows of constant length whose logits the collector sees.
class WatchedWindow final : public BoundedWindow {
 public:
  WatchedWindow(int64_t window, RouterCollector& collector) : BoundedWindow(window), collector_(collector) {}

  WindowTraits traits() const override { return {.name = "watched", .decides = Decides::kBeforeToken}; }
  void begin(std::span<const Row> /*rows*/) override { collector_.forget_draft(); }
  at::Tensor go_on(const DraftStep& step) override {
    collector_.drafted(step.logits);
    return at::ones({step.logits.size(0)}, at::TensorOptions(at::kBool).device(step.logits.device()));
  }

 private:
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

const model::TransformerModel& router_embeddings(const LoadedDrafter* drafter, const model::LanguageModel* target,
                                                 const std::string& where, const std::string& name) {
  const model::TransformerModel* embeddings = drafter == nullptr ? nullptr : drafter->transformer();
  if (embeddings != nullptr && embeddings->config().reads_features()) {
    embeddings = dynamic_cast<const model::TransformerModel*>(target);
  }
  if (embeddings == nullptr) throw UserError(router_needs_model(where, name));
  return *embeddings;
}

std::unique_ptr<model::RouterPredictor> load_router(const std::filesystem::path& directory,
                                                    const LoadedDrafter* drafter, const model::LanguageModel* target,
                                                    const std::string& where, const std::string& name) {
  const model::Router router = model::load_router(directory);
  const model::TransformerModel& embeddings = router_embeddings(drafter, target, where, name);
  model::require_router_fits(router, directory, drafter->path());
  return std::make_unique<model::RouterPredictor>(router, embeddings);
}

DraftParts RouterCollector::watched(std::unique_ptr<Drafter> drafter, int64_t window) {
  return {std::move(drafter), std::make_unique<WatchedWindow>(window, *this),
          std::make_unique<WatchedRule>(std::make_unique<RejectionAcceptance>(),
                                        [this](const Verification& verification, const Judgement& judgement) {
                                          judged(verification, judgement.accepted);
                                        })};
}

void RouterCollector::drafted(const at::Tensor& logits) {
  window_.push_back(logits.is_cpu() ? logits : logits.cpu());  // a device's next step may overwrite its logits
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
      if (row.finished) continue;
      const int64_t examined = std::min(lengths[b] + 1, counts[b]);
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
