#include "infer/loop/processors.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

namespace draftsmith::infer {
namespace {

constexpr const char* kHint = "use a drafter made with the target's tokenizer";

// Returns the first id by which the tokenizers mean different pieces. An id of one of them alone is a difference if
// ordinary text is cut into it, and none if it was added.
std::optional<int64_t> first_difference(const data::Tokenizer& a, const data::Tokenizer& b) {
  const int64_t shared = std::min(a.vocabulary(), b.vocabulary());
  for (int64_t id = 0; id < shared; ++id) {
    const std::string ours = a.piece(static_cast<int32_t>(id));
    const std::string theirs = b.piece(static_cast<int32_t>(id));
    if (ours != theirs && !ours.empty() && !theirs.empty()) return id;
  }
  const int64_t more = (a.vocabulary() > shared ? a : b).text_ids();
  return more > shared ? std::optional(shared) : std::nullopt;
}

std::string described(const data::Tokenizer& tokenizer, int64_t id) {
  const bool known = id < tokenizer.vocabulary();
  return fmt::format("{} pieces, id {} is {}", tokenizer.vocabulary(), id,
                     known ? "'" + tokenizer.piece(static_cast<int32_t>(id)) + "'" : "none");
}

}  // namespace

void compare_vocabularies(const model::ModelInfo& target, const model::ModelInfo& drafter,
                          const data::Tokenizer* target_tokenizer, const data::Tokenizer* drafter_tokenizer,
                          Problems& problems) {
  const std::string where = "drafter " + drafter.name + " of target " + target.name;
  if (target_tokenizer == nullptr || drafter_tokenizer == nullptr) {
    if (target.vocabulary == drafter.vocabulary) return;
    problems.add({where, "drafter and target have vocabularies of different sizes",
                  std::to_string(target.vocabulary) + " ids, as the target",
                  std::to_string(drafter.vocabulary) + " ids",
                  std::string(kHint) + "; padding may differ where both directories have it"});
    return;
  }
  if (target_tokenizer->hash() == drafter_tokenizer->hash()) return;
  const std::optional<int64_t> id = first_difference(*target_tokenizer, *drafter_tokenizer);
  if (!id) return;
  problems.add({where, "drafter and target have tokenizers with different pieces", described(*target_tokenizer, *id),
                described(*drafter_tokenizer, *id), kHint});
}

std::string text_of_known(const data::Tokenizer& tokenizer, std::span<const int64_t> ids) {
  std::vector<int32_t> known;
  for (const int64_t id : ids) {
    if (id >= 0 && id < tokenizer.vocabulary()) known.push_back(static_cast<int32_t>(id));
  }
  return tokenizer.decode(known);
}

int64_t ids_in_use(const data::Tokenizer& tokenizer, std::span<const int64_t> eos) {
  int64_t count = tokenizer.writable_ids();
  for (const int64_t id : eos) count = std::max(count, id + 1);
  return count;
}

void mask_padding(at::Tensor logits, int64_t ids) {
  const int64_t width = logits.size(-1);
  if (ids >= width) return;
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat && logits.is_contiguous()) {
    float* values = logits.mutable_data_ptr<float>();
    for (int64_t end = width; end <= logits.numel(); end += width) {
      std::fill(values + end - width + ids, values + end, -std::numeric_limits<float>::infinity());
    }
    return;
  }
  logits.narrow(-1, ids, width - ids).fill_(-std::numeric_limits<double>::infinity());
}

at::Tensor known_tokens(const at::Tensor& tokens, const model::ModelInfo& model, int64_t vocabulary) {
  return model.vocabulary < vocabulary ? tokens.masked_fill(tokens.ge(model.vocabulary), model.pad) : tokens;
}

at::Tensor fit_vocabulary(const at::Tensor& logits, int64_t vocabulary) {
  const int64_t width = logits.size(-1);
  if (width == vocabulary) return logits;
  if (width > vocabulary) return logits.narrow(-1, 0, vocabulary);
  return at::constant_pad_nd(logits, {0, vocabulary - width}, -std::numeric_limits<double>::infinity());
}

std::vector<std::vector<int64_t>> mask_unknown_ids(const model::ModelInfo& model,
                                                   std::span<const std::vector<int64_t>> lists) {
  std::vector<std::vector<int64_t>> known(lists.begin(), lists.end());
  for (auto& list : known) {
    std::replace_if(
        list.begin(), list.end(), [&](int64_t id) { return id >= model.vocabulary; }, model.pad);
  }
  return known;
}

namespace {

using model::GenerationConfig;

constexpr double kBannedLogit = -std::numeric_limits<double>::infinity();

// Tokens at positions of logits [B,P,V], which one operation changes.
class Places {
 public:
  void add(int64_t row, int64_t position, std::span<const int64_t> ids) {
    for (const int64_t id : ids) {
      rows_.push_back(row);
      positions_.push_back(position);
      ids_.push_back(id);
    }
  }
  bool empty() const { return ids_.empty(); }

  // Returns the three indices, int64 [n] each, in one copy that the host does not wait for.
  std::array<at::Tensor, 3> indices(at::Device device) const {
    std::vector<int64_t> all = rows_;
    all.insert(all.end(), positions_.begin(), positions_.end());
    all.insert(all.end(), ids_.begin(), ids_.end());
    const at::Tensor packed = to_device(all, {3, std::ssize(ids_)}, device);
    return {packed[0], packed[1], packed[2]};
  }

 private:
  std::vector<int64_t> rows_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> ids_;
};

void ban(const at::Tensor& logits, const Places& places) {
  if (places.empty()) return;
  const auto [row, position, id] = places.indices(logits.device());
  at::Tensor changed = logits;
  changed.index_put_({row, position, id}, at::full({}, kBannedLogit, logits.options()));
}

// Divides positive and multiplies negative logits of the given tokens.
void penalise(const at::Tensor& logits, const Places& places, double penalty) {
  if (places.empty()) return;
  const auto [row, position, id] = places.indices(logits.device());
  const auto old = logits.index({row, position, id});
  at::Tensor changed = logits;
  changed.index_put_({row, position, id}, at::where(old.lt(0), old * penalty, old / penalty));
}

// Bans all tokens at the positions of these, but these.
void force(const at::Tensor& logits, const Places& places) {
  if (places.empty()) return;
  const auto [row, position, id] = places.indices(logits.device());
  at::Tensor changed = logits;
  changed.index_put_({row, position}, at::full({}, kBannedLogit, logits.options()));
  changed.index_put_({row, position, id}, at::zeros({}, logits.options()));
}

// Returns the tokens that would repeat an n-gram of `tokens` if they followed them.
std::vector<int64_t> completions(const std::vector<int64_t>& tokens, int64_t n) {
  std::vector<int64_t> found;
  const int64_t head = n - 1;
  if (static_cast<int64_t>(tokens.size()) < head) return found;
  const auto last = tokens.end() - head;
  for (auto begin = tokens.begin(); tokens.end() - begin >= n; ++begin) {
    if (std::equal(last, tokens.end(), begin)) found.push_back(begin[head]);
  }
  return found;
}

// One position of one row: its place in the logits and the tokens before it. It moves on from one to the next.
struct ProcessedPosition {
  int64_t b;
  const Row& row;
  int64_t j = 0;
  int64_t length = 0;                  // number of tokens, start token or prompt included
  std::vector<int64_t> tokens = {};    // committed and drafted; empty if no processor needs history
  std::vector<int64_t> distinct = {};  // for a penalty: the committed ones once each, and the draft's

  void add_to(Places& places, std::span<const int64_t> ids) const { places.add(b, j, ids); }
};

// Changes that the rules of all positions ask for, in the order of their application.
struct LogitEdits {
  Places penalised;
  Places banned;
  Places forced;
  Places suppressed;  // banned, even if forced
};

// These add what a rule asks for at one position.

void add_repetitions(const GenerationConfig& settings, const ProcessedPosition& position, LogitEdits& edits) {
  if (settings.repetition_penalty != 1) position.add_to(edits.penalised, position.distinct);
  const int64_t n = settings.no_repeat_ngram_size;
  if (n > 0) position.add_to(edits.banned, completions(position.tokens, n));
}

void add_words(const GenerationConfig& settings, const ProcessedPosition& position, LogitEdits& edits) {
  for (const auto& word : settings.bad_words) {
    const auto head = static_cast<int64_t>(word.size()) - 1;
    if (head > position.length) continue;
    if (head == 0 || std::equal(word.begin(), word.end() - 1, position.tokens.end() - head)) {
      position.add_to(edits.banned, {&word.back(), 1});
    }
  }
}

void add_length_rules(const GenerationConfig& settings, const ProcessedPosition& position, LogitEdits& edits) {
  const bool too_short = position.length < settings.min_length ||
                         position.length - position.row.prefix < settings.min_new_tokens.value_or(0);
  if (too_short) position.add_to(edits.banned, settings.eos_ids);
}

void add_forced_and_suppressed(const GenerationConfig& settings, const ProcessedPosition& position, LogitEdits& edits) {
  const bool last = position.length - position.row.prefix == position.row.limit - 1;
  if (!settings.forced_eos.empty() && last) {
    position.add_to(edits.forced, settings.forced_eos);
  } else if (settings.forced_bos && position.length == 1) {
    position.add_to(edits.forced, {&*settings.forced_bos, 1});
  }
  position.add_to(edits.suppressed, settings.suppress);
}

}  // namespace

LogitsProcessors::LogitsProcessors(model::GenerationConfig settings) : settings_(std::move(settings)) {
  if (settings_.min_new_tokens) settings_.min_length = 0;  // as Transformers, which lets the former replace it
  // Ignores a banned "word" that is one EOS, as Transformers does.
  std::erase_if(settings_.bad_words, [&](const std::vector<int64_t>& word) {
    return word.size() == 1 &&
           std::find(settings_.eos_ids.begin(), settings_.eos_ids.end(), word[0]) != settings_.eos_ids.end();
  });
  active_ = settings_.has_processors();
  history_ = settings_.repetition_penalty != 1 || settings_.no_repeat_ngram_size > 0 ||
             std::any_of(settings_.bad_words.begin(), settings_.bad_words.end(),
                         [](const auto& word) { return word.size() > 1; });
}

void LogitsProcessors::apply(at::Tensor logits, const ProcessorContext& context) const {
  LogitEdits edits;
  for (size_t b = 0; b < context.rows.size(); ++b) {
    const Row& row = context.rows[b];
    const auto drafted = context.drafted.empty() ? std::span<const int64_t>() : std::span(context.drafted[b]);
    if (row.finished) continue;
    ProcessedPosition position{static_cast<int64_t>(b), row};
    if (history_) position.tokens = row.tokens;
    if (settings_.repetition_penalty != 1) position.distinct = row.tokens;
    std::ranges::sort(position.distinct);
    position.distinct.erase(std::unique(position.distinct.begin(), position.distinct.end()), position.distinct.end());
    for (; position.j < logits.size(1); ++position.j) {
      const int64_t ahead = context.first + position.j;
      const bool beyond_draft = history_ && ahead > std::ssize(drafted);
      if (row.emitted() + ahead >= row.limit || beyond_draft) break;  // garbage positions
      position.length = row.length() + ahead;
      while (history_ && std::ssize(position.tokens) < position.length) {
        position.tokens.push_back(drafted[position.tokens.size() - row.tokens.size()]);
        if (!position.distinct.empty()) position.distinct.push_back(position.tokens.back());
      }
      add_repetitions(settings_, position, edits);
      add_words(settings_, position, edits);
      add_length_rules(settings_, position, edits);
      add_forced_and_suppressed(settings_, position, edits);
    }
  }
  penalise(logits, edits.penalised, settings_.repetition_penalty);
  ban(logits, edits.banned);
  force(logits, edits.forced);
  ban(logits, edits.suppressed);
}

void DecodeSettings::process(const at::Tensor& logits, const ProcessorContext& context) const {
  mask_padding(logits, ids);
  if (!processors.empty()) processors.apply(logits.dim() == 2 ? logits.unsqueeze(1) : logits, context);
}

}  // namespace draftsmith::infer
