#include "model/transformer/draft_vocabulary.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace draftsmith::model {

VocabularyRows::VocabularyRows(const TransformerConfig& config, at::Device device) : vocabulary_(config.vocabulary) {
  const DraftVocabulary& pruned = config.draft_vocabulary;
  if (pruned.ids.empty()) return;
  const auto rows = static_cast<int64_t>(pruned.ids.size());
  const auto stand_in = std::lower_bound(pruned.ids.begin(), pruned.ids.end(), pruned.stand_in);
  if (stand_in == pruned.ids.end() || *stand_in != pruned.stand_in || pruned.ids.back() >= vocabulary_) {
    throw std::logic_error("the ids of a pruned vocabulary do not fit together");
  }
  const at::Tensor ids = at::tensor(pruned.ids, at::kLong);
  const at::Tensor row_of = at::full({vocabulary_}, stand_in - pruned.ids.begin(), at::kLong);
  row_of.index_copy_(0, ids, at::arange(rows, at::kLong));
  ids_ = ids.to(device);
  row_of_ = row_of.to(device);
}

at::Tensor VocabularyRows::of(const at::Tensor& tokens) const {
  return pruned() ? row_of_.index_select(0, tokens.reshape({-1})).view(tokens.sizes()) : tokens;
}

at::Tensor VocabularyRows::has(const at::Tensor& tokens) const {
  if (!pruned()) return at::ones(tokens.sizes(), tokens.options().dtype(at::kBool));
  return ids_.index_select(0, of(tokens).reshape({-1})).view(tokens.sizes()).eq(tokens);
}

at::Tensor VocabularyRows::spread(const at::Tensor& values, double elsewhere) const {
  if (!pruned()) return values;
  std::vector<int64_t> shape = values.sizes().vec();
  shape.back() = vocabulary_;
  return at::full(shape, elsewhere, values.options().requires_grad(false)).index_copy_(-1, ids_, values);
}

std::vector<int64_t> most_frequent_ids(const std::vector<int64_t>& counts, const std::vector<int64_t>& kept,
                                       int64_t size) {
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<bool> always(counts.size(), false);
  for (const int64_t id : kept) always.at(static_cast<size_t>(id)) = true;
  const auto needed = std::count(always.begin(), always.end(), true);
  if (size < needed || size > static_cast<int64_t>(counts.size())) {
    throw std::logic_error("a pruned vocabulary cannot have this size");
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return always[i] != always[j] ? always[i] : counts[i] > counts[j];
  });
  order.resize(static_cast<size_t>(size));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace draftsmith::model
