// Drafters that read the text alone: `ngram`, from a table of n-gram counts, and `lookup`, prompt look-up, alone and
// before another drafter.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "data/ngrams/ngram_table.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/registry.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {
namespace {

class NgramDrafter final : public Drafter {
 public:
  // `vocabulary` and `device` are the target's. Ids that the table lacks get no probability. The counts must outlive
  // the drafter and have at most `vocabulary` ids.
  NgramDrafter(const data::NgramCounts& counts, int64_t vocabulary, at::Device device)
      : counts_(counts), vocabulary_(vocabulary), device_(device) {}

  DrafterTraits traits() const override { return traits_of(DrafterKind::kNgram); }
  void prefill(const DraftBegin& begin) override { encoder_decoder_ = begin.target_encoder != nullptr; }

  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override {
    std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
    for (size_t b = 0; b < tokens.size(); ++b) {
      if (request.active[b] != 0) tokens[b] = counts_.most_likely(context(request, b));
    }
    return tokens;
  }

  at::Tensor next_logits(const DraftRequest& request) override {
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

 private:
  data::NgramNodes context(const DraftRequest& request, size_t row) const {
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

  const data::NgramCounts& counts_;
  int64_t vocabulary_;
  at::Device device_;
  bool encoder_decoder_ = false;  // if so, a row's prefix is the start token, which the table calls the beginning
};

class LoadedNgramDrafter final : public LoadedDrafter {
 public:
  explicit LoadedNgramDrafter(std::shared_ptr<const data::NgramTable> table) : table_(std::move(table)) {}

  std::string name() const override { return path().string(); }
  std::filesystem::path path() const override { return table_->file(); }

  // A table has no pieces to compare, only its tokenizer's hash.
  void check(const DraftTarget& target, Problems& problems) const override {
    const data::NgramInfo& table = table_->info();
    const std::string hint = "make the table from a corpus of the target's tokenizer, by a stage of kind = \"ngram\"";
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

// A row's text, and where a window copies from.
struct LookupText {
  std::vector<int64_t> tokens;  // the source, then the row's committed tokens
  int64_t begin = 0;            // position where the row's tokens begin
  int64_t committed = 0;        // tokens of the row that are in `tokens`, or a start token, which is not
  int64_t match = -1;           // position where the window begins to copy; -1: nowhere

  void add(const Row& row) {
    tokens.insert(tokens.end(), row.tokens.begin() + committed, row.tokens.end());
    committed = row.length();
  }

  bool copies() const { return match >= 0; }

  // Looks for the last earlier occurrence of the longest possible suffix of the row's tokens, of `shortest` to
  // `longest`. A token of the same text follows there, and occurrences do not cross from the source into the row.
  void find(int64_t shortest, int64_t longest) {
    const auto last = tokens.rbegin();
    match = -1;
    int64_t best = shortest - 1;
    for (int64_t next = std::ssize(tokens) - 1; next > 0 && best < longest; --next) {
      if (next == begin) continue;
      const int64_t own = next - (next > begin ? begin : 0);  // tokens of the same text before it
      const int64_t most = std::min({longest, own, std::ssize(tokens) - begin});
      const int64_t length = std::mismatch(last, last + most, last + std::ssize(tokens) - next).first - last;
      if (length <= best) continue;
      best = length;
      match = next;
    }
  }

  // Returns the next token of the copy, which may go on into the tokens that it has drafted itself.
  int64_t copied(std::span<const int64_t> drafted) const {
    if (!copies()) return kNoProposal;
    const int64_t position = match + std::ssize(drafted);
    if (match < begin && position >= begin) return kNoProposal;  // the source ends
    const int64_t beyond = position - std::ssize(tokens);
    return beyond >= 0 ? drafted[static_cast<size_t>(beyond)] : tokens[static_cast<size_t>(position)];
  }
};

// Returns the texts of a batch that begins.
std::vector<LookupText> texts_of(const DraftBegin& begin) {
  std::vector<LookupText> texts;
  texts.reserve(begin.rows.size());
  for (size_t b = 0; b < begin.rows.size(); ++b) {
    if (b % static_cast<size_t>(begin.samples) != 0) {  // another sample of the same source
      texts.push_back(texts.back());
      continue;
    }
    const Row& row = begin.rows[b];
    LookupText& text = texts.emplace_back(LookupText{.tokens = row.source, .begin = std::ssize(row.source)});
    if (begin.target_encoder != nullptr) text.committed = row.prefix;  // the start token means nothing in a text
    text.add(row);
  }
  return texts;
}

class PromptLookupDrafter final : public Drafter {
 public:
  explicit PromptLookupDrafter(int64_t longest) : longest_(longest) {}

  DrafterTraits traits() const override { return traits_of(DrafterKind::kLookup); }
  void prefill(const DraftBegin& begin) override { texts_ = texts_of(begin); }

  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override {
    std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
    for (size_t b = 0; b < tokens.size(); ++b) {
      if (request.active[b] == 0) continue;
      if (request.on_host[b].empty()) texts_[b].find(1, longest_);
      tokens[b] = texts_[b].copied(request.on_host[b]);
    }
    return tokens;
  }

  at::Tensor next_logits(const DraftRequest&) override { throw std::logic_error("prompt look-up has no logits"); }

  void observe(const DraftObservation& observation) override {
    for (size_t b = 0; b < texts_.size(); ++b) texts_[b].add(observation.rows[b]);
  }

  void select_rows(std::span<const int64_t> rows) override { keep_rows(texts_, rows); }

 private:
  int64_t longest_;
  std::vector<LookupText> texts_;  // [B]
};

// Writes a row [V] of logits whose only possible token is `token`. All are finite, so that a logits processor that
// forbids the token leaves numbers; at every temperature the others' probabilities are 0.
void write_certain(const at::Tensor& row, int64_t token) {
  constexpr float kImpossible = -1e8F;
  if (row.is_cpu() && row.scalar_type() == at::kFloat) {  // on this thread: LibTorch's disturb the next step
    std::fill_n(row.mutable_data_ptr<float>(), row.numel(), kImpossible);
    row.mutable_data_ptr<float>()[token] = 0;
  } else {
    row.fill_(kImpossible);
    row.select(0, token).zero_();
  }
}

// Prompt look-up before another drafter, whose windows are those for which nothing is found. The other one sees nothing
// of a copied window but what is committed. It is no part of its target, so run_target() and count_layers() are the
// target's own; whole windows on a device are not drafted behind look-up, which reads texts on the host.
class DrafterBehindLookup final : public Drafter {
 public:
  DrafterBehindLookup(std::unique_ptr<Drafter> drafter, int64_t shortest, const model::ModelInfo& target)
      : drafter_(std::move(drafter)),
        shortest_(shortest),
        vocabulary_(target.vocabulary),
        type_(at::TensorOptions(target.dtype == at::kDouble ? at::kDouble : at::kFloat).device(target.device)) {}

  DrafterTraits traits() const override {
    DrafterTraits traits = drafter_->traits();
    traits.on_host = true;
    return traits;
  }

  void encode(const DraftBegin& begin) override { drafter_->encode(begin); }

  void prefill(const DraftBegin& begin) override {
    drafter_->prefill(begin);
    texts_ = texts_of(begin);
    find();
  }

  // Proposes tokens if all rows copy, or if none does and the drafter proposes them.
  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override {
    const std::vector<int64_t> left = left_to_drafter(request);
    if (any(left)) return std::ranges::equal(left, request.active) ? drafter_->next_tokens(request) : std::nullopt;
    std::vector<int64_t> tokens(left.size(), kNoProposal);
    for (size_t b = 0; b < tokens.size(); ++b) {
      if (request.active[b] != 0) tokens[b] = texts_[b].copied(request.on_host[b]);
    }
    return tokens;
  }

  at::Tensor next_logits(const DraftRequest& request) override {
    const std::vector<int64_t> left = left_to_drafter(request);
    DraftRequest rest = request;
    rest.active = left;
    const at::Tensor logits =
        any(left) ? promoted(drafter_->next_logits(rest)) : at::empty({std::ssize(left), vocabulary_}, type_);
    for (size_t b = 0; b < left.size(); ++b) {
      if (request.active[b] == left[b]) continue;
      const std::vector<int64_t>& drafted = request.on_host[b];
      const int64_t token = texts_[b].copied(drafted);
      // Logits cannot end a draft where the source ends: the last token once more is seldom right.
      write_certain(logits[static_cast<int64_t>(b)], token == kNoProposal ? drafted.back() : token);
    }
    return logits;
  }

  StepTokens step_tokens(const DraftRequest& request, size_t row) const override {
    return texts_[row].copies() ? StepTokens{0, 0} : drafter_->step_tokens(request, row);
  }

  void observe(const DraftObservation& observation) override {
    drafter_->observe(observation);
    for (size_t b = 0; b < texts_.size(); ++b) texts_[b].add(observation.rows[b]);
    find();
  }

  void select_rows(std::span<const int64_t> rows) override {
    drafter_->select_rows(rows);
    keep_rows(texts_, rows);
  }

  int64_t room(const Row& row) const override { return drafter_->room(row); }
  std::vector<int64_t> target_layers() const override { return drafter_->target_layers(); }

 private:
  // Looks for what each row's next window copies.
  void find() {
    for (LookupText& text : texts_) text.find(shortest_, std::max(shortest_, kLongestLookup));
  }

  // Returns for each row [B] 1 if it drafts and does not copy, else 0.
  std::vector<int64_t> left_to_drafter(const DraftRequest& request) const {
    std::vector<int64_t> left(request.active.begin(), request.active.end());
    for (size_t b = 0; b < left.size(); ++b) left[b] &= texts_[b].copies() ? 0 : 1;
    return left;
  }

  std::unique_ptr<Drafter> drafter_;
  int64_t shortest_;
  int64_t vocabulary_;
  at::TensorOptions type_;         // of logits if all rows copy
  std::vector<LookupText> texts_;  // [B]
};

class LoadedLookupDrafter final : public LoadedDrafter {
 public:
  explicit LoadedLookupDrafter(int64_t longest) : longest_(longest) {}

  std::string name() const override { return "lookup:" + std::to_string(longest_); }
  void check(const DraftTarget& /*target*/, Problems& /*problems*/) const override {}
  std::unique_ptr<Drafter> make(const DraftTarget& /*target*/) const override {
    return std::make_unique<PromptLookupDrafter>(longest_);
  }

 private:
  int64_t longest_;
};

}  // namespace

SharedDrafter as_drafter(std::shared_ptr<const data::NgramTable> table) {
  return std::make_shared<LoadedNgramDrafter>(std::move(table));
}

SharedDrafter lookup_drafter(int64_t longest) {
  return std::make_shared<LoadedLookupDrafter>(longest);
}

std::unique_ptr<Drafter> with_lookup(std::unique_ptr<Drafter> drafter, int64_t shortest,
                                     const model::ModelInfo& target) {
  return std::make_unique<DrafterBehindLookup>(std::move(drafter), shortest, target);
}

}  // namespace draftsmith::infer
