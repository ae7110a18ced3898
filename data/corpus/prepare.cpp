#include "data/corpus/prepare.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "data/chat/chat_tokens.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

namespace {

struct Pair {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

// The result of one chunk of text. An error is kept until the earlier chunks are written, so that the first bad line of
// the input is reported.
struct Chunk {
  std::vector<Pair> pairs;
  TextCounts counts;
  std::optional<Problem> error;
  int64_t examples = 0;
};

// Turns examples into pairs of ids that keep to the options: prompts, affixes, lengths, references. Several threads may
// share one.
class ChunkTokenizer {
 public:
  // Tokenizer and options must outlive the object.
  ChunkTokenizer(const Tokenizer& tokenizer, const PrepareOptions& options);

  Chunk operator()(const std::vector<Example>& examples) const;

 private:
  void add(const Example& example, const std::string& target, Chunk& chunk) const;
  void add_windows(const std::vector<int32_t>& text, Chunk& chunk) const;
  Pair window(const std::vector<int32_t>& text, int64_t begin, int64_t end) const;
  Pair ids_of(const Example& example, const std::string& target) const;
  void keep(Pair pair, Chunk& chunk) const;
  bool splits() const { return options_.too_long == "split"; }
  std::vector<int32_t> source_ids(const std::string& text) const;
  bool fits(Pair& pair, const Example& example, Chunk& chunk) const;
  int64_t truncate_target(std::vector<int32_t>& ids) const;
  int64_t truncate_source(std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  std::vector<int32_t> before_;  // of every prompt, as in generation: BOS, if the tokenizer's frame has one
  std::vector<int32_t> end_;     // of every source: the suffix and EOS
};

bool over(const std::vector<int32_t>& ids, int64_t limit) {
  return limit > 0 && static_cast<int64_t>(ids.size()) > limit;
}

void add_count(const std::string& what, int64_t count, TextCounts& counts) {
  if (count > 0) counts[what] += count;
}

// Returns the targets that are not empty, or all if all are empty (the stream's policy has allowed that).
std::vector<std::string> usable_targets(const Example& example, TextCounts& counts) {
  std::vector<std::string> usable;
  std::copy_if(example.targets.begin(), example.targets.end(), std::back_inserter(usable),
               [](const std::string& target) { return !is_blank(target); });
  if (usable.empty()) return example.targets;
  add_count("references not used: empty", std::ssize(example.targets) - std::ssize(usable), counts);
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
    add_count("references not used", std::ssize(targets) - static_cast<int64_t>(used), chunk.counts);
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
    ++chunk.counts["dropped: no longer than the prompt"];
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
  add_count("unknown tokens in sources", std::ranges::count(pair.source, tokenizer_.unk()), chunk.counts);
  add_count("unknown tokens in targets", std::ranges::count(pair.target, tokenizer_.unk()), chunk.counts);
  chunk.pairs.push_back(std::move(pair));
}

// As few windows as keep to the limit, whose lengths differ by one token at most. So none is much shorter than the
// others, and EOS does not stand alone in the last.
void ChunkTokenizer::add_windows(const std::vector<int32_t>& text, Chunk& chunk) const {
  const int64_t first = options_.prompt_tokens;
  const int64_t tokens = std::ssize(text) - first;
  const int64_t windows = (tokens + options_.max_target - 1) / options_.max_target;
  if (windows > 1) {
    ++chunk.counts["split texts"];
    chunk.counts["windows of split texts"] += windows;
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
    ++chunk.counts["dropped: too long"];
    return false;
  }
  add_count("truncated sources", truncate_source(pair.source), chunk.counts);
  add_count("truncated targets", truncate_target(pair.target), chunk.counts);
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

constexpr size_t kChunkExamples = 2048;

// Reads the examples of a stream that `skip` and `limit` select, in chunks.
class Slice {
 public:
  Slice(ExampleStream& stream, const PrepareOptions& options) : stream_(stream), options_(options) {}

  std::vector<Example> next_chunk() {
    std::vector<Example> examples;
    const auto wanted = [&] { return options_.limit == 0 || taken_ < options_.limit; };
    for (Example example; examples.size() < kChunkExamples && wanted() && stream_.next(example);) {
      if (passed_ < options_.skip) {
        ++passed_;
        continue;
      }
      examples.push_back(std::move(example));
      ++taken_;
    }
    return examples;
  }

 private:
  ExampleStream& stream_;
  const PrepareOptions& options_;
  int64_t passed_ = 0;
  int64_t taken_ = 0;
};

void write_chunk(Chunk chunk, CorpusWriter& writer, PrepareReport& report) {
  for (const Pair& pair : chunk.pairs) {
    writer.add(pair.source, pair.target);
    report.source_tokens += static_cast<int64_t>(pair.source.size());
    report.target_tokens += static_cast<int64_t>(pair.target.size());
  }
  report.written += static_cast<int64_t>(chunk.pairs.size());
  for (const auto& [what, count] : chunk.counts) report.counts[what] += count;
  if (chunk.error) throw UserError(*chunk.error);
}

CorpusInfo corpus_info(const ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options) {
  CorpusInfo info;
  info.tokenizer_hash = tokenizer.hash();
  info.vocabulary = tokenizer.vocabulary();
  size_t number = 0;
  for (const std::filesystem::path& file : stream.files()) {
    const std::string key = "text_file_" + std::to_string(number++);
    info.provenance[key] = file.filename().string();
    info.provenance[key + "_sha256"] = sha256_file(file);
  }
  info.provenance["max_source"] = std::to_string(options.max_source);
  info.provenance["max_target"] = std::to_string(options.max_target);
  info.provenance["too_long"] = options.too_long;
  info.provenance["references"] = options.references;
  if (!options.prefix.empty()) info.provenance["prefix"] = options.prefix;
  if (!options.suffix.empty()) info.provenance["suffix"] = options.suffix;
  if (options.skip > 0) info.provenance["skip"] = std::to_string(options.skip);
  if (options.limit > 0) info.provenance["limit"] = std::to_string(options.limit);
  if (options.prompt_tokens > 0) info.provenance["prompt_tokens"] = std::to_string(options.prompt_tokens);
  info.provenance["prompts"] = options.prompts || options.prompt_tokens > 0 ? "true" : "false";
  return info;
}

void check_options(const PrepareOptions& options, const Tokenizer& tokenizer) {
  Problems problems;
  validate_options(options, "prepare", problems);
  if (tokenizer.eos() < 0) {
    problems.add({.where = tokenizer.file().string(),
                  .what = "the tokenizer has no end-of-sequence id",
                  .expected = "a tokenizer with EOS, which ends every row of a corpus"});
  }
  if (options.prompt_tokens > 0 && !(options.prefix.empty() && options.suffix.empty())) {
    problems.add({.where = "prepare.prompt_tokens",
                  .what = "prompts taken from the beginning of plain text cannot have a prefix or a suffix",
                  .expected = "neither prefix nor suffix"});
  }
  if (options.too_long == "split" && options.max_target < 2) {
    problems.add({.where = "prepare.max_target",
                  .what = "texts are split into windows of this many tokens",
                  .expected = "2 tokens or more",
                  .found = std::to_string(options.max_target)});
  }
  const auto framed = std::ssize(tokenizer.frame().before) + options.prompt_tokens;
  if (options.prompt_tokens > 0 && options.max_source > 0 && options.max_source < framed) {
    problems.add({.where = "prepare.max_source",
                  .what = "is shorter than any prompt",
                  .expected = std::to_string(framed) + " tokens at least, or 0",
                  .found = std::to_string(options.max_source)});
  }
  const auto suffix = options.suffix.empty() ? 0 : std::ssize(tokenizer.encode(options.suffix));
  if (suffix > 0 && options.max_source > 0 && options.max_source < suffix + 2) {
    problems.add({.where = "prepare.max_source",
                  .what = "leaves room for the suffix only",
                  .expected = std::to_string(suffix + 2) + " tokens at least, or 0",
                  .found = std::to_string(options.max_source)});
  }
  problems.throw_if_any();
}

}  // namespace

Fields<PrepareOptions> PrepareOptions::fields() {
  return Fields<PrepareOptions>("corpus options")
      .add("max_source", &PrepareOptions::max_source, Range{0}, Unit{"tokens"},
           "Longest source, EOS counted; 0: no limit.")
      .add("max_target", &PrepareOptions::max_target, Range{0}, Unit{"tokens"},
           "Longest target, EOS counted; 0: no limit.")
      .add("too_long", &PrepareOptions::too_long, Choices{"error", "drop", "truncate", "split"},
           "Longer examples: stop with an error, drop the example, truncate it (EOS is kept), or split it. Split plain "
           "text becomes windows of equal length, an example each; only the last ends in EOS. A model reads each after "
           "its start token, with positions from 0; with prompt_tokens, after the tokens before the window.")
      .add("references", &PrepareOptions::references, Choices{"first", "all"},
           "Several targets for a source: use the first, or make one example of each.")
      .add("prefix", &PrepareOptions::prefix, "Text before each source, such as \"summarize: \".")
      .add("suffix", &PrepareOptions::suffix,
           "Text after each source, such as \"Summary:\". Tokenized separately, and kept when a source is truncated.")
      .add("prompts", &PrepareOptions::prompts,
           "Decoder-only models: sources are prompts that the targets continue, without EOS.")
      .add("prompt_tokens", &PrepareOptions::prompt_tokens, Range{0}, Unit{"tokens"},
           "Plain text only: the first tokens become the prompt of the rest. 0: no prompts.")
      .add("skip", &PrepareOptions::skip, Range{0}, Unit{"examples"},
           "Examples to skip at the beginning, for instance the examples of another split.")
      .add("limit", &PrepareOptions::limit, Range{0}, Unit{"examples"}, "Maximum examples after skip; 0: all.")
      .add("threads", &PrepareOptions::threads, Range{1, 256}, NoResult{}, "Threads that tokenize.");
}

PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress) {
  check_options(options, tokenizer);
  CorpusWriter writer(out, corpus_info(stream, tokenizer, options));
  const ChunkTokenizer tokenize(tokenizer, options);
  PrepareReport report;
  std::deque<std::future<Chunk>> pending;
  const auto write_oldest = [&] {
    Chunk chunk = pending.front().get();
    pending.pop_front();
    const int64_t examples = chunk.examples;
    write_chunk(std::move(chunk), writer, report);
    if (progress) progress(examples);
  };
  std::exception_ptr read_error;
  Slice slice(stream, options);
  for (;;) {
    std::vector<Example> examples;
    try {
      examples = slice.next_chunk();
    } catch (const UserError&) {
      read_error = std::current_exception();
      break;
    }
    if (examples.empty()) break;
    // One more chunk than workers keeps them busy while this thread reads and writes.
    if (static_cast<int64_t>(pending.size()) > options.threads) write_oldest();
    pending.push_back(
        std::async(std::launch::async, [&tokenize, examples = std::move(examples)] { return tokenize(examples); }));
  }
  while (!pending.empty()) write_oldest();
  if (read_error) std::rethrow_exception(read_error);
  report.counts.merge(stream.counts());
  for (const auto& [name, count] : report.counts) writer.set_provenance("count: " + name, std::to_string(count));
  writer.finish();
  return report;
}

}  // namespace draftsmith::data
