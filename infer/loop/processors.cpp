#include "infer/loop/processors.h"

#include <algorithm>
#include <limits>
#include <set>

namespace draftsmith::infer {

namespace {

constexpr double kBannedLogit = -std::numeric_limits<double>::infinity();

void ban(const at::Tensor& logits, const std::vector<int64_t>& ids) {
  if (ids.empty()) return;
  at::Tensor row = logits;
  row.index_fill_(0, to_device(ids, {static_cast<int64_t>(ids.size())}, logits.device()), kBannedLogit);
}

// Divides positive and multiplies negative logits of the given tokens.
void penalise_tokens(const at::Tensor& logits, const std::set<int64_t>& tokens, double penalty) {
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  if (ids.empty()) return;
  const auto index = to_device(ids, {static_cast<int64_t>(ids.size())}, logits.device());
  const auto old = logits.index_select(0, index);
  at::Tensor row = logits;
  row.index_copy_(0, index, at::where(old.lt(0), old * penalty, old / penalty));
}

// Returns the tokens that would repeat an n-gram of `text` if they followed `tokens`.
std::vector<int64_t> completions(std::span<const int64_t> text, const std::vector<int64_t>& tokens, int64_t n) {
  std::vector<int64_t> found;
  const int64_t head = n - 1;
  if (static_cast<int64_t>(tokens.size()) < head) return found;
  const auto last = tokens.end() - head;
  for (auto begin = text.begin(); text.end() - begin >= n; ++begin) {
    if (std::equal(last, tokens.end(), begin)) found.push_back(begin[head]);
  }
  return found;
}

}  // namespace

// One position of one row: its logits and the tokens before it.
struct LogitsProcessors::Position {
  at::Tensor logits;  // [V]
  const Row& row;
  std::vector<int64_t> tokens;  // committed and drafted; empty if no processor needs history
  int64_t length;               // number of tokens, start token or prompt included
};

LogitsProcessors::LogitsProcessors(model::GenerationConfig settings) : settings_(std::move(settings)) {
  if (settings_.min_new_tokens) settings_.min_length = 0;  // as Transformers, which lets the former replace it
  // Ignores a banned "word" that is one EOS, as Transformers does.
  std::erase_if(settings_.bad_words, [&](const std::vector<int64_t>& word) {
    return word.size() == 1 &&
           std::find(settings_.eos_ids.begin(), settings_.eos_ids.end(), word[0]) != settings_.eos_ids.end();
  });
  active_ = settings_.has_processors();
  history_ = settings_.repetition_penalty != 1 || settings_.no_repeat_ngram_size > 0 ||
             settings_.encoder_no_repeat_ngram_size > 1 ||
             std::any_of(settings_.bad_words.begin(), settings_.bad_words.end(),
                         [](const auto& word) { return word.size() > 1; });
}

void LogitsProcessors::apply(at::Tensor logits, const ProcessorContext& context) const {
  for (size_t b = 0; b < context.rows.size(); ++b) {
    const Row& row = context.rows[b];
    const auto drafted = context.drafted.empty() ? std::span<const int64_t>() : std::span(context.drafted[b]);
    for (int64_t j = 0; j < logits.size(1); ++j) {
      const int64_t ahead = context.first + j;
      const bool beyond_draft = history_ && ahead > std::ssize(drafted);
      if (row.finished || row.emitted() + ahead >= row.limit || beyond_draft) break;  // garbage positions
      Position position{logits.select(0, static_cast<int64_t>(b)).select(0, j), row, {}, row.length() + ahead};
      if (history_) {
        position.tokens = row.tokens;
        position.tokens.insert(position.tokens.end(), drafted.begin(), drafted.begin() + ahead);
      }
      penalise(position);
      ban_repetitions(position);
      ban_words(position);
      bound_length(position);
      force_and_suppress(position);
    }
  }
}

void LogitsProcessors::penalise(const Position& position) const {
  const auto source = position.row.input();
  if (settings_.encoder_repetition_penalty != 1) {
    penalise_tokens(position.logits, {source.begin(), source.end()}, 1 / settings_.encoder_repetition_penalty);
  }
  if (settings_.repetition_penalty != 1) {
    penalise_tokens(position.logits, {position.tokens.begin(), position.tokens.end()}, settings_.repetition_penalty);
  }
}

void LogitsProcessors::ban_repetitions(const Position& position) const {
  if (settings_.no_repeat_ngram_size > 0) {
    ban(position.logits, completions(position.tokens, position.tokens, settings_.no_repeat_ngram_size));
  }
  if (settings_.encoder_no_repeat_ngram_size > 0) {
    ban(position.logits, completions(position.row.input(), position.tokens, settings_.encoder_no_repeat_ngram_size));
  }
}

void LogitsProcessors::ban_words(const Position& position) const {
  std::vector<int64_t> banned;
  for (const auto& word : settings_.bad_words) {
    const auto head = static_cast<int64_t>(word.size()) - 1;
    if (head > position.length) continue;
    if (head == 0 || std::equal(word.begin(), word.end() - 1, position.tokens.end() - head)) {
      banned.push_back(word.back());
    }
  }
  ban(position.logits, banned);
}

void LogitsProcessors::bound_length(const Position& position) const {
  const bool too_short = position.length < settings_.min_length ||
                         position.length - position.row.prefix < settings_.min_new_tokens.value_or(0);
  if (too_short) ban(position.logits, settings_.eos_ids);
}

void LogitsProcessors::force_and_suppress(const Position& position) const {
  at::Tensor logits = position.logits;
  const auto force = [&](const std::vector<int64_t>& ids) {
    logits.fill_(kBannedLogit);
    logits.index_fill_(0, to_device(ids, {static_cast<int64_t>(ids.size())}, logits.device()), 0);
  };
  if (settings_.forced_bos && position.length == 1) force({*settings_.forced_bos});
  if (!settings_.forced_eos.empty() && position.length - position.row.prefix == position.row.limit - 1) {
    force(settings_.forced_eos);
  }
  ban(position.logits, settings_.suppress);
  const int64_t begin = position.row.prefix + (position.row.prefix == 1 && settings_.forced_bos ? 1 : 0);
  if (position.length == begin) ban(position.logits, settings_.begin_suppress);
}

}  // namespace draftsmith::infer
