#include "model/transformer/draft_vocabulary.h"

#include <algorithm>
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

}  // namespace draftsmith::model
