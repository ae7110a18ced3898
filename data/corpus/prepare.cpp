#include "data/corpus/prepare.h"

#include <algorithm>
#include <deque>
#include <future>

#include "base/error.h"
#include "base/sha256.h"
#include "data/corpus/chunk_tokenizer.h"

namespace draftsmith::data {

namespace {

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
  report.dropped_long += chunk.counts.dropped_long;
  report.dropped_short += chunk.counts.dropped_short;
  report.truncated_sources += chunk.counts.truncated_sources;
  report.truncated_targets += chunk.counts.truncated_targets;
  report.split_texts += chunk.counts.split_texts;
  report.windows += chunk.counts.windows;
  report.unused_references += chunk.counts.unused_references;
  report.empty_references += chunk.counts.empty_references;
  report.unknown_source_tokens += chunk.counts.unknown_source_tokens;
  report.unknown_target_tokens += chunk.counts.unknown_target_tokens;
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
  report.read = stream.counts();
  for (const auto& [name, count] : report.nonzero()) writer.set_provenance("count: " + name, std::to_string(count));
  writer.finish();
  return report;
}

}  // namespace draftsmith::data
