#include "infer/drafters/ngram_drafter.h"

#include <algorithm>
#include <limits>

#include "data/ngrams/ngram_table.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::infer {

namespace {

class LoadedNgramDrafter final : public LoadedDrafter {
 public:
  explicit LoadedNgramDrafter(std::shared_ptr<const data::NgramTable> table) : table_(std::move(table)) {}

  std::string name() const override { return path().string(); }
  std::filesystem::path path() const override { return table_->file(); }

  // A table has no pieces to compare, only its tokenizer's hash.
  void check(const DraftTarget& target, Problems& problems) const override {
    const data::NgramInfo& table = table_->info();
    const std::string hint = "make the table from a corpus of the target's tokenizer, with `draftsmith data ngrams`";
    if (target.tokenizer != nullptr && target.tokenizer->hash() != table.tokenizer_hash) {
      problems.add({"drafter " + name(), "the n-gram table was made with another tokenizer than the target's",
                    "tokenizer " + target.tokenizer->hash().substr(0, 16),
                    "tokenizer " + table.tokenizer_hash.substr(0, 16), hint});
    } else if (table.vocabulary > target.model.info().vocabulary) {
      problems.add({"drafter " + name(), "the n-gram table has more token ids than the target",
                    "at most " + std::to_string(target.model.info().vocabulary), std::to_string(table.vocabulary),
                    hint});
    }
  }

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    const model::ModelInfo& info = target.model.info();
    return std::make_unique<NgramDrafter>(table_->counts(), info.vocabulary, info.device);
  }

 private:
  std::shared_ptr<const data::NgramTable> table_;
};

}  // namespace

void NgramDrafter::prefill(const DraftBegin& begin) {
  encoder_decoder_ = begin.target_encoder != nullptr;
}

data::NgramNodes NgramDrafter::context(const DraftRequest& request, size_t row) const {
  const Row& committed = request.rows[row];
  const std::vector<int64_t>& drafted = request.on_host[row];
  const size_t first = encoder_decoder_ ? static_cast<size_t>(committed.prefix) : 0;
  // Returns the token `back` places before the next one.
  const auto token = [&](size_t back) {
    if (back <= drafted.size()) return drafted[drafted.size() - back];
    back -= drafted.size();
    const bool begins = back > committed.tokens.size() - first;
    return begins ? data::NgramContext::kBeginning : committed.tokens[committed.tokens.size() - back];
  };
  return counts_.find({.before = token(2), .last = token(1)});
}

std::optional<std::vector<int64_t>> NgramDrafter::next_tokens(const DraftRequest& request) {
  std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (request.active[b] != 0) tokens[b] = counts_.most_likely(context(request, b));
  }
  return tokens;
}

at::Tensor NgramDrafter::next_logits(const DraftRequest& request) {
  const auto rows = static_cast<int64_t>(request.rows.size());
  auto logits = at::empty({rows, vocabulary_}, at::kFloat);
  auto* row = logits.mutable_data_ptr<float>();
  for (size_t b = 0; b < request.rows.size(); ++b, row += vocabulary_) {
    if (request.active[b] == 0) {
      std::fill(row, row + vocabulary_, 0.0F);
      continue;
    }
    counts_.log_probabilities(context(request, b), {row, static_cast<size_t>(counts_.vocabulary())});
    std::fill(row + counts_.vocabulary(), row + vocabulary_, -std::numeric_limits<float>::infinity());
  }
  return logits.to(device_);
}

SharedDrafter load_ngram_drafter(const std::filesystem::path& file) {
  return as_drafter(std::make_shared<data::NgramTable>(file));
}

SharedDrafter as_drafter(std::shared_ptr<const data::NgramTable> table) {
  return std::make_shared<LoadedNgramDrafter>(std::move(table));
}

}  // namespace draftsmith::infer
