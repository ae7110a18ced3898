#include "data/corpus/prepare.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "data/chat/chat_template.h"

namespace draftsmith::data {
namespace {

struct Pair {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

// The result of one chunk of text.
struct Chunk {
  std::vector<Pair> pairs;
  TextCounts counts;
  int64_t examples = 0;
};

bool over(const std::vector<int32_t>& ids, int64_t limit) {
  return limit > 0 && std::ssize(ids) > limit;
}

void add_count(const std::string& what, int64_t count, TextCounts& counts) {
  if (count > 0) counts[what] += count;
}

[[noreturn]] void fail_too_long(const Example& example, const std::string& side, const std::vector<int32_t>& ids,
                                int64_t limit, const std::string& hint) {
  const bool is_source = side == "source" || example.target_where.empty();
  throw UserError({is_source ? example.where : example.target_where, side + " is too long",
                   "at most " + std::to_string(limit) + " tokens, EOS counted", std::to_string(ids.size()) + " tokens",
                   hint});
}

// Turns examples into pairs of ids that keep to the options: prompts, affixes, lengths. Several threads may share one.
class ChunkTokenizer {
 public:
  // Tokenizer and options must outlive the object.
  ChunkTokenizer(const Tokenizer& tokenizer, const PrepareOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        before_(tokenizer.frames().source.before),
        ends_(reply_ends(tokenizer)) {
    if (!options.prompts) target_before_ = tokenizer.frames().target.before;
    if (!options.suffix.empty()) end_ = tokenizer.encode(options.suffix);
    if (!options.prompts) end_.push_back(tokenizer.eos());
  }

  // Stops early if a stop was requested: the chunk is not to be used then. Errors: UserError for the first example that
  // the options do not allow.
  Chunk operator()(const std::vector<Example>& examples) const {
    Chunk chunk;
    chunk.examples = std::ssize(examples);
    for (const Example& example : examples) {
      if (stop_requested() != 0) break;
      add(example, chunk);
    }
    return chunk;
  }

 private:
  void add(const Example& example, Chunk& chunk) const {
    const bool splits = options_.too_long == "split", affixed = !(options_.prefix.empty() && options_.suffix.empty());
    if (affixed && (example.from_template || !example.has_source)) {
      throw UserError({example.where, "a prefix and a suffix are for sources, and this text has none of its own",
                       "neither prefix nor suffix", "", "a chat template and plain text are taken as they are"});
    }
    if (example.has_source && (options_.prompt_tokens > 0 || splits)) {
      throw UserError(
          {example.where,
           fmt::format("{} applies to plain text only, but this text has sources",
                       splits ? "too_long = split" : "prompt_tokens"),
           "text, or jsonl without a source field", "",
           splits ? "set too_long to drop or truncate" : "set prompts = true to use the sources as prompts"});
    }
    Pair pair = ids_of(example, chunk.counts);
    if (options_.prompt_tokens > 0 && std::ssize(pair.target) <= options_.prompt_tokens + 1) {
      ++chunk.counts["dropped: no longer than the prompt"];
      return;
    }
    if (splits) return add_windows(pair.target, chunk);
    if (options_.prompt_tokens > 0) pair = window(pair.target, options_.prompt_tokens, std::ssize(pair.target));
    if (fits(pair, example, chunk.counts)) keep(std::move(pair), chunk);
  }

  // Takes the first target that is not empty, if there is one.
  Pair ids_of(const Example& example, TextCounts& counts) const {
    const auto usable = std::ranges::find_if(example.targets, [](const auto& target) { return !is_blank(target); });
    const std::string& target = usable == example.targets.end() ? example.targets.front() : *usable;
    add_count("references not used", std::ssize(example.targets) - 1, counts);
    if (example.from_template) {
      return {encode_chat(tokenizer_, example.source), encode_reply(tokenizer_, example.source, target, ends_)};
    }
    const bool prompted = !example.has_source || options_.prompts;  // for a decoder-only model
    Pair pair = {.source = {}, .target = prompted ? tokenizer_.encode(target) : tokenizer_.encode_target(target)};
    pair.target.push_back(tokenizer_.eos());
    if (!example.has_source) return pair;
    pair.target.insert(pair.target.begin(), target_before_.begin(), target_before_.end());
    pair.source = tokenizer_.encode(options_.prefix + example.source);
    pair.source.insert(pair.source.end(), end_.begin(), end_.end());
    pair.source.insert(pair.source.begin(), before_.begin(), before_.end());
    return pair;
  }

  // As few windows as keep to the limit, whose lengths differ by one token at most. So none is much shorter than the
  // others, and EOS does not stand alone in the last.
  void add_windows(const std::vector<int32_t>& text, Chunk& chunk) const {
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
  Pair window(const std::vector<int32_t>& text, int64_t begin, int64_t end) const {
    Pair pair = {.source = {}, .target = {text.begin() + begin, text.begin() + end}};
    if (options_.prompt_tokens == 0) return pair;
    pair.source = before_;
    pair.source.insert(pair.source.end(), text.begin() + begin - options_.prompt_tokens, text.begin() + begin);
    return pair;
  }

  // Applies `too_long`. Returns false if the pair is dropped. A truncated source keeps suffix and EOS.
  bool fits(Pair& pair, const Example& example, TextCounts& counts) const {
    const bool long_source = over(pair.source, options_.max_source);
    const bool long_target = over(pair.target, options_.max_target);
    if (!long_source && !long_target) return true;
    if (options_.too_long == "drop") {
      ++counts["dropped: too long"];
      return false;
    }
    if (options_.too_long == "error") {
      const std::string side = long_source ? "source" : "target";
      fail_too_long(example, side, long_source ? pair.source : pair.target,
                    long_source ? options_.max_source : options_.max_target,
                    "raise max_" + side + ", or set too_long to drop or truncate");
    }
    if (long_source && example.from_template) {
      fail_too_long(example, "source", pair.source, options_.max_source,
                    "a chat template's prompt is not cut: set too_long to drop, or raise max_source");
    }
    if (long_source) {
      const auto kept = static_cast<std::ptrdiff_t>(options_.max_source) - std::ssize(end_);
      if (kept <= std::ssize(before_)) {
        fail_too_long(example, "source", pair.source, options_.max_source,
                      "what stands around its text leaves that no room: raise max_source");
      }
      pair.source.erase(pair.source.begin() + kept, pair.source.end() - std::ssize(end_));
      ++counts["truncated sources"];
    }
    if (long_target) {
      pair.target.resize(static_cast<size_t>(options_.max_target));
      pair.target.back() = tokenizer_.eos();
      ++counts["truncated targets"];
    }
    return true;
  }

  void keep(Pair pair, Chunk& chunk) const {
    add_count("unknown tokens in sources", std::ranges::count(pair.source, tokenizer_.unk()), chunk.counts);
    add_count("unknown tokens in targets", std::ranges::count(pair.target, tokenizer_.unk()), chunk.counts);
    chunk.pairs.push_back(std::move(pair));
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  // The first ids of every source or prompt, as in generation: BOS or a language, if the tokenizer's frame has one. And
  // of targets.
  std::vector<int32_t> before_;
  std::vector<int32_t> target_before_;
  std::vector<int32_t> ends_;   // of replies
  std::vector<int32_t> end_{};  // of every source: the suffix and EOS
};

void write_chunk(const Chunk& chunk, CorpusWriter& writer, PrepareReport& report) {
  for (const Pair& pair : chunk.pairs) {
    writer.add(pair.source, pair.target);
    report.source_tokens += std::ssize(pair.source);
    report.target_tokens += std::ssize(pair.target);
  }
  report.written += std::ssize(chunk.pairs);
  for (const auto& [what, count] : chunk.counts) report.counts[what] += count;
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
    problems.add({tokenizer.file().string(), "the tokenizer has no end-of-sequence id",
                  "a tokenizer with EOS, which ends every row of a corpus", "", ""});
  }
  const int64_t prompt = options.prompt_tokens + std::ssize(tokenizer.frames().source.before);
  if (options.prompt_tokens > 0 && options.max_source > 0 && prompt > options.max_source) {
    problems.add({"prepare.max_source", "all prompts would be longer, and their continuations begin at their ends",
                  fmt::format("{} tokens or more, or 0", prompt), std::to_string(options.max_source), ""});
  }
  problems.throw_if_any();
}

// Refuses a pipe: text is read more than once, to count lines and to hash files, and the second pass over a pipe would
// silently find less text.
void require_regular_file(const std::filesystem::path& file) {
  std::error_code ignored;
  using std::filesystem::file_type;
  const auto type = std::filesystem::status(file, ignored).type();
  if (type == file_type::fifo || type == file_type::character || type == file_type::socket) {
    throw UserError({file.string(), "is a pipe or a device, but text is read twice", "a regular file", "",
                     "write the text to a file first"});
  }
}

}  // namespace

Fields<TextInput> TextInput::fields() {
  return Fields<TextInput>("text input")
      .add("dataset", &TextInput::dataset, "Data set by name, instead of files: \"multi30k/train\".")
      .add("direction", &TextInput::direction, "With a data set of parallel text: source and target, \"de-en\".")
      .add("source", &TextInput::source, "Parallel text: file with one source per line.")
      .add("target", &TextInput::target, "Parallel text: file with one target per line.")
      .add("jsonl", &TextInput::jsonl, "File with one JSON object per line.")
      .add("source_field", &TextInput::source_field,
           "Field of the JSON objects with the source; turns[0] is the first element of a list; empty: no source.")
      .add("target_fields", &TextInput::target_fields,
           "Fields with the targets; several fields give several references.")
      .add(
          "messages", &TextInput::messages,
          "Field of the JSON objects with a conversation, a list of messages with role and content, in place of source "
          "and targets. Each message of the assistant is an example, and alone is learned; the text before it, as the "
          "chat template writes it, is the prompt. Fields tools and documents are passed to the template.")
      .add("chat_template", &TextInput::chat_template,
           "With messages: model directory whose chat template is taken, or a .jinja file; default: the tokenizer's.")
      .add("text", &TextInput::text, "Plain text: file of targets without sources.")
      .add("separator", &TextInput::separator,
           "Line that separates documents of plain text; empty: every line is a document.");
}

TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input) {
  if (!input.messages.empty() && input.chat_template.empty()) input.chat_template = tokenizer;
  return input;
}

void check_text(const TextInput& input, const std::string& where, Problems& problems) {
  const bool parallel = !input.source.empty() || !input.target.empty();
  const int kinds = (parallel ? 1 : 0) + (input.jsonl.empty() ? 0 : 1) + (input.text.empty() ? 0 : 1);
  if (kinds == 1 && input.source.empty() == input.target.empty()) return;
  problems.add({where,
                kinds > 1    ? "more than one kind of input"
                : kinds == 0 ? "no input"
                             : "half of a pair of parallel files",
                "source and target, or jsonl, or text", "", ""});
}

std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies, bool prompts) {
  throw_problems_of(check_text, input, "text input");
  for (const auto& file : {input.source, input.target, input.jsonl, input.text}) require_regular_file(file);
  if (!input.messages.empty()) {
    if (input.jsonl.empty()) {
      throw UserError({"text input", "conversations stand in jsonl files", "jsonl", "", ""});
    }
    return open_chat(input.jsonl, input.messages, load_chat_template(input.chat_template), policies, prompts);
  }
  if (!input.source.empty()) return open_parallel(input.source, input.target, policies);
  if (!input.text.empty()) return open_plain_text(input.text, input.separator, policies);
  return open_jsonl(input.jsonl, {input.source_field, input.target_fields}, policies);
}

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
      .add("prefix", &PrepareOptions::prefix, "Text before each source, such as \"summarize: \".")
      .add("suffix", &PrepareOptions::suffix,
           "Text after each source, such as \"Summary:\". Tokenized separately, and kept when a source is truncated.")
      .add("prompts", &PrepareOptions::prompts,
           "Decoder-only models: sources are prompts that the targets continue, without EOS. With messages: "
           "each conversation without the assistant's last message, for the model to answer; targets are EOS alone.")
      .add("prompt_tokens", &PrepareOptions::prompt_tokens, Range{0}, Unit{"tokens"},
           "Plain text only: the first tokens become the prompt of the rest. 0: no prompts.")
      .add("skip", &PrepareOptions::skip, Range{0}, Unit{"examples"},
           "Examples to skip at the beginning, for instance the examples of another split.")
      .add("limit", &PrepareOptions::limit, Range{0}, Unit{"examples"}, "Maximum examples after skip; 0: all.")
      .add("threads", &PrepareOptions::threads, Range{1, 256}, NoResult{}, "Threads that tokenize.")
      .check([](const PrepareOptions& options, const std::string& where, Problems& problems) {
        if (options.too_long != "split" || options.max_target >= 2) return;
        problems.add({where + ".max_target", "texts are split into windows of this many tokens", "2 tokens or more",
                      std::to_string(options.max_target), ""});
      });
}

PrepareReport prepare_corpus(ExampleStream& stream, const Tokenizer& tokenizer, const PrepareOptions& options,
                             const std::filesystem::path& out, const ProgressCallback& progress) {
  constexpr size_t kChunkExamples = 2048;
  check_options(options, tokenizer);
  CorpusWriter writer(out, corpus_info(stream, tokenizer, options));
  const ChunkTokenizer tokenize(tokenizer, options);
  PrepareReport report;
  std::deque<std::future<Chunk>> pending;
  const auto write_oldest = [&] {
    const Chunk chunk = pending.front().get();
    pending.pop_front();
    throw_if_stop_requested("the corpus was not written");
    write_chunk(chunk, writer, report);
    if (progress) progress(chunk.examples);
  };
  // An error of reading waits until the earlier chunks are written, so that the first bad line is reported.
  std::exception_ptr read_error;
  int64_t taken = -options.skip;
  const auto next_chunk = [&] {
    std::vector<Example> examples;
    try {
      for (Example example; examples.size() < kChunkExamples && (options.limit == 0 || taken < options.limit);) {
        if (!stream.next(example)) break;
        if (++taken > 0) examples.push_back(std::move(example));
      }
    } catch (const UserError&) {
      read_error = std::current_exception();
      examples.clear();
    }
    return examples;
  };
  for (auto examples = next_chunk(); !examples.empty(); examples = next_chunk()) {
    // One more chunk than workers keeps them busy while this thread reads and writes.
    if (static_cast<int64_t>(pending.size()) > options.threads) write_oldest();
    pending.push_back(
        std::async(std::launch::async, [&tokenize, examples = std::move(examples)] { return tokenize(examples); }));
  }
  while (!pending.empty()) write_oldest();
  if (read_error) std::rethrow_exception(read_error);
  report.counts.insert(stream.counts().begin(), stream.counts().end());
  for (const auto& [name, count] : report.counts) writer.set_provenance("count: " + name, std::to_string(count));
  writer.finish();
  return report;
}

}  // namespace draftsmith::data
