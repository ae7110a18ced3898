#include "data/corpus/chunk_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "data/chat/chat_tokens.h"

namespace draftsmith::data {
namespace {

bool over(const std::vector<int32_t>& ids, int64_t limit) {
  return limit > 0 && static_cast<int64_t>(ids.size()) > limit;
}

// Returns the targets that are not empty, or all if all are empty (the stream's policy has allowed that).
std::vector<std::string> usable_targets(const Example& example, PrepareReport& counts) {
  std::vector<std::string> usable;
  std::copy_if(example.targets.begin(), example.targets.end(), std::back_inserter(usable),
               [](const std::string& target) { return !is_blank(target); });
  if (usable.empty()) return example.targets;
  counts.empty_references += static_cast<int64_t>(example.targets.size() - usable.size());
  return usable;
}

Problem too_long(const Example& example, const std::string& side, const std::vector<int32_t>& ids, int64_t limit) {
  return {.where = example.where,
          .what = side + " is too long",
          .expected = "at most " + std::to_string(limit) + " tokens, EOS counted",
          .found = std::to_string(ids.size()) + " tokens",
          .hint = "raise max_" + side + ", or set too_long to drop or truncate"};
}

Problem needs_plain_text(const Example& example, const std::string& what, const std::string& hint) {
  return {.where = example.where,
          .what = what + " applies to plain text only, but this text has sources",
          .expected = "text, or jsonl without a source field",
          .hint = hint};
}

// Returns the tokens at the end of every source: the suffix and EOS.
std::vector<int32_t> source_end(const Tokenizer& tokenizer, const PrepareOptions& options) {
  std::vector<int32_t> ids = options.suffix.empty() ? std::vector<int32_t>() : tokenizer.encode(options.suffix);
  if (!options.prompts) ids.push_back(tokenizer.eos());
  return ids;
}

}  // namespace

ChunkTokenizer::ChunkTokenizer(const Tokenizer& tokenizer, const PrepareOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      before_(tokenizer.frame().before),
      end_(source_end(tokenizer, options)) {}

Chunk ChunkTokenizer::operator()(const std::vector<Example>& examples) const {
  Chunk chunk;
  chunk.examples = static_cast<int64_t>(examples.size());
  for (const Example& example : examples) {
    const std::vector<std::string> targets = usable_targets(example, chunk.counts);
    const size_t used = options_.references == "all" ? targets.size() : 1;
    chunk.counts.unused_references += static_cast<int64_t>(targets.size() - used);
    for (size_t i = 0; i < used && !chunk.error; ++i) add(example, targets[i], chunk);
    if (chunk.error) break;
  }
  return chunk;
}

void ChunkTokenizer::add(const Example& example, const std::string& target, Chunk& chunk) const {
  if (example.has_source && options_.prompt_tokens > 0) {
    chunk.error = needs_plain_text(example, "prompt_tokens", "set prompts = true to use the sources as prompts");
    return;
  }
  if (example.has_source && splits()) {
    chunk.error = needs_plain_text(example, "too_long = split", "set too_long to drop or truncate");
    return;
  }
  Pair pair = ids_of(example, target);
  if (options_.prompt_tokens > 0 && std::ssize(pair.target) <= options_.prompt_tokens + 1) {
    ++chunk.counts.dropped_short;
    return;
  }
  if (splits()) return add_windows(pair.target, chunk);
  if (options_.prompt_tokens > 0) pair = window(pair.target, options_.prompt_tokens, std::ssize(pair.target));
  if (fits(pair, example, chunk)) keep(std::move(pair), chunk);
}

Pair ChunkTokenizer::ids_of(const Example& example, const std::string& target) const {
  if (example.from_template) return {encode_chat(tokenizer_, example.source), encode_reply(tokenizer_, target)};
  Pair pair = {.source = example.has_source ? source_ids(example.source) : std::vector<int32_t>(),
               .target = tokenizer_.encode(target)};
  pair.target.push_back(tokenizer_.eos());
  return pair;
}

void ChunkTokenizer::keep(Pair pair, Chunk& chunk) const {
  chunk.counts.unknown_source_tokens += std::count(pair.source.begin(), pair.source.end(), tokenizer_.unk());
  chunk.counts.unknown_target_tokens += std::count(pair.target.begin(), pair.target.end(), tokenizer_.unk());
  chunk.pairs.push_back(std::move(pair));
}

// As few windows as keep to the limit, whose lengths differ by one token at most. So none is much shorter than the
// others, and EOS does not stand alone in the last.
void ChunkTokenizer::add_windows(const std::vector<int32_t>& text, Chunk& chunk) const {
  const int64_t first = options_.prompt_tokens;
  const int64_t tokens = std::ssize(text) - first;
  const int64_t windows = (tokens + options_.max_target - 1) / options_.max_target;
  if (windows > 1) {
    ++chunk.counts.split_texts;
    chunk.counts.windows += windows;
  }
  for (int64_t i = 0; i < windows; ++i) {
    keep(window(text, first + tokens * i / windows, first + tokens * (i + 1) / windows), chunk);
  }
}

// Returns the tokens [begin,end) of a text as a target. Its prompt is the tokens before it.
Pair ChunkTokenizer::window(const std::vector<int32_t>& text, int64_t begin, int64_t end) const {
  Pair pair = {.source = {}, .target = {text.begin() + begin, text.begin() + end}};
  if (options_.prompt_tokens == 0) return pair;
  pair.source = before_;
  pair.source.insert(pair.source.end(), text.begin() + begin - options_.prompt_tokens, text.begin() + begin);
  return pair;
}

// Applies `too_long`. Returns false if the pair is dropped or an error.
bool ChunkTokenizer::fits(Pair& pair, const Example& example, Chunk& chunk) const {
  const bool long_source = over(pair.source, options_.max_source);
  if (!long_source && !over(pair.target, options_.max_target)) return true;
  if (options_.too_long == "error") {
    chunk.error = long_source ? too_long(example, "source", pair.source, options_.max_source)
                              : too_long(example, "target", pair.target, options_.max_target);
    return false;
  }
  if (options_.too_long == "truncate" && example.from_template && long_source) {
    chunk.error = too_long(example, "source", pair.source, options_.max_source);
    chunk.error->hint = "a chat template's prompt is not cut: set too_long to drop, or raise max_source";
    return false;
  }
  if (options_.too_long == "drop") {
    ++chunk.counts.dropped_long;
    return false;
  }
  chunk.counts.truncated_sources += truncate_source(pair.source);
  chunk.counts.truncated_targets += truncate_target(pair.target);
  return true;
}

std::vector<int32_t> ChunkTokenizer::source_ids(const std::string& text) const {
  std::vector<int32_t> ids = tokenizer_.encode(options_.prefix + text);
  ids.insert(ids.end(), end_.begin(), end_.end());
  if (options_.prompts) ids.insert(ids.begin(), before_.begin(), before_.end());
  return ids;
}

int64_t ChunkTokenizer::truncate_target(std::vector<int32_t>& ids) const {
  if (!over(ids, options_.max_target)) return 0;
  ids.resize(static_cast<size_t>(options_.max_target));
  ids.back() = tokenizer_.eos();
  return 1;
}

// Keeps the suffix and EOS of a source.
int64_t ChunkTokenizer::truncate_source(std::vector<int32_t>& ids) const {
  if (!over(ids, options_.max_source)) return 0;
  const auto kept = std::max<std::ptrdiff_t>(0, options_.max_source - std::ssize(end_));
  ids.erase(ids.begin() + kept, ids.end() - std::ssize(end_));
  return 1;
}

}  // namespace draftsmith::data
