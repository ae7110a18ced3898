#include "infer/drafters/text_drafters.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "data/ngrams/ngram_table.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/costs/step_costs.h"
#include "infer/forced/teacher_forcing.h"

namespace draftsmith::infer {

namespace {

// A loaded drafter that is no model: its steps are measured one by one.
class LoadedTextDrafter : public LoadedDrafter {
 public:
  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    return measure_step_costs(target.model, *make(target), context, max_tokens);
  }

  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    return measure_forced_alpha(target.model, *make(target), texts.sources, texts.outputs, warping);
  }
};

class LoadedNgramDrafter final : public LoadedTextDrafter {
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

namespace {

class LoadedLookupDrafter final : public LoadedTextDrafter {
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

// Extends an n-gram's hash by the token before it (a step of splitmix64): n-grams are hashed from their last token
// backwards.
uint64_t SuffixIndex::extended(uint64_t hash, int64_t token) {
  uint64_t x = hash + static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

size_t SuffixIndex::place(uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].end >= 0 && slots_[at].hash != hash) at = (at + 1) & mask;
  return at;
}

void SuffixIndex::put(uint64_t hash, int64_t end) {
  Slot& slot = slots_[place(hash)];
  if (slot.end < 0 && 2 * ++used_ > slots_.size()) {
    slot = {hash, end};
    return grow();
  }
  slot = {hash, end};
}

void SuffixIndex::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.end >= 0) slots_[place(slot.hash)] = slot;
  }
}

// Indexes the n-grams that end before the new token, which now follows them.
void SuffixIndex::add(int64_t token) {
  uint64_t hash = 0;
  const int64_t end = size() - 1;
  for (int64_t first = end; first >= text_ && end - first < longest_; --first) {
    hash = extended(hash, tokens_[static_cast<size_t>(first)]);
    put(hash, end);
  }
  tokens_.push_back(token);
  begins_.push_back(text_);
}

bool SuffixIndex::equal(int64_t end, int64_t other, int64_t length) const {
  if (other - length + 1 < begins_[static_cast<size_t>(other)]) return false;
  const auto last = tokens_.begin() + end + 1;
  return std::equal(last - length, last, tokens_.begin() + other + 1 - length);
}

int64_t SuffixIndex::follower() const {
  uint64_t hash = 0;
  int64_t found = -1;
  const int64_t end = size() - 1;
  for (int64_t first = end; first >= text_ && end - first < longest_; --first) {
    hash = extended(hash, tokens_[static_cast<size_t>(first)]);
    const Slot& slot = slots_[place(hash)];
    // Compares the tokens, because different n-grams may share a hash.
    if (slot.end < 0 || !equal(end, slot.end, end - first + 1)) break;
    found = slot.end + 1;
  }
  return found;
}

int64_t SuffixIndex::token(int64_t position) const {
  const auto at = static_cast<size_t>(position);
  if (position >= size() || (position > 0 && begins_[at] != begins_[at - 1])) return -1;
  return tokens_[at];
}

void PromptLookupDrafter::Text::add(const Row& row) {
  for (; committed < row.length(); ++committed) index.add(row.tokens[static_cast<size_t>(committed)]);
}

void PromptLookupDrafter::prefill(const DraftBegin& begin) {
  const bool encoder_decoder = begin.target_encoder != nullptr;
  texts_.clear();
  texts_.reserve(begin.rows.size());
  for (size_t b = 0; b < begin.rows.size(); ++b) {
    if (b % static_cast<size_t>(begin.samples) != 0) {  // another sample of the same source
      texts_.push_back(texts_.back());
      continue;
    }
    const Row& row = begin.rows[b];
    Text& text = texts_.emplace_back(Text{.index = SuffixIndex(longest_)});
    for (const int64_t token : row.source) text.index.add(token);
    text.index.begin_text();
    if (encoder_decoder) text.committed = row.prefix;  // the start token means nothing in a text
    text.add(row);
  }
}

// Returns the next token of the copy, which may go on into the tokens that it has drafted itself.
int64_t PromptLookupDrafter::copied(const Text& text, std::span<const int64_t> drafted) {
  if (text.match < 0) return kNoProposal;
  const int64_t position = text.match + static_cast<int64_t>(drafted.size());
  const int64_t beyond = position - text.index.size();
  if (beyond >= 0) return drafted[static_cast<size_t>(beyond)];
  const int64_t token = text.index.token(position);
  return token < 0 ? kNoProposal : token;
}

std::optional<std::vector<int64_t>> PromptLookupDrafter::next_tokens(const DraftRequest& request) {
  std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (request.active[b] == 0) continue;
    if (request.on_host[b].empty()) texts_[b].match = texts_[b].index.follower();
    tokens[b] = copied(texts_[b], request.on_host[b]);
  }
  return tokens;
}

at::Tensor PromptLookupDrafter::next_logits(const DraftRequest&) {
  throw std::logic_error("prompt look-up has no logits");
}

void PromptLookupDrafter::observe(const DraftObservation& observation) {
  for (size_t b = 0; b < texts_.size(); ++b) texts_[b].add(observation.rows[b]);
}

void PromptLookupDrafter::select_rows(std::span<const int64_t> rows) {
  keep_rows(texts_, rows);
}

SharedDrafter lookup_drafter(int64_t longest) {
  return std::make_shared<LoadedLookupDrafter>(longest);
}

}  // namespace draftsmith::infer
