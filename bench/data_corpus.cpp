// How fast text becomes a corpus and comes back: the target is 1 M pairs of 30 tokens in under 60 s, and over 5
// M tokens/s read, on 2 cores. Run: build/release/bench/bench_data_corpus [pairs] [threads]
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "base/files.h"
#include "base/timing.h"
#include "data/corpus/batches.h"
#include "data/corpus/prepare.h"
#include "data/synthetic/synthetic.h"
#include "data/text/readers.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"

namespace {

using namespace draftsmith;

// Sentences of about 30 tokens; distinct ones are repeated, for the time is in tokenizing and writing, not in novelty.
std::vector<data::SyntheticPair> sentences() {
  constexpr int64_t kDistinct = 30000;
  const data::SyntheticLanguage language({.vocabulary = 4000, .min_words = 17, .max_words = 25, .nesting = 0.35});
  std::vector<data::SyntheticPair> pairs;
  for (int64_t i = 0; i < kDistinct; ++i) pairs.push_back(language.pair("bench", i));
  return pairs;
}

void write_text(const std::vector<data::SyntheticPair>& pairs, int64_t count, const TemporaryDirectory& directory) {
  std::ofstream source(directory / "source");
  std::ofstream target(directory / "target");
  for (int64_t i = 0; i < count; ++i) {
    const data::SyntheticPair& pair = pairs[static_cast<size_t>(i) % pairs.size()];
    source << pair.source << '\n';
    target << pair.target << '\n';
  }
}

void run(int64_t count, int64_t threads) {
  const TemporaryDirectory directory;
  const std::vector<data::SyntheticPair> pairs = sentences();
  std::vector<std::string> lines;
  for (const data::SyntheticPair& pair : pairs) {
    lines.push_back(pair.source);
    lines.push_back(pair.target);
  }
  data::train_tokenizer(lines, {.vocabulary = 4000, .exact_size = false, .max_lines = 20000},
                        directory / "spiece.model");
  const auto tokenizer = data::load_tokenizer(directory / "spiece.model");
  write_text(pairs, count, directory);

  Stopwatch watch;
  const auto stream = data::open_parallel(directory / "source", directory / "target", {});
  const auto report = data::prepare_corpus(*stream, *tokenizer, {.threads = threads}, directory / "corpus.h5");
  const double prepare_seconds = watch.seconds();
  const auto tokens = static_cast<double>(report.source_tokens + report.target_tokens);
  fmt::print(
      "prepare: {} pairs, {:.1f} source and {:.1f} target tokens a pair, {} threads: {:.1f} s, {:.2f} M tokens/s\n",
      report.written, static_cast<double>(report.source_tokens) / static_cast<double>(count),
      static_cast<double>(report.target_tokens) / static_cast<double>(count), threads, prepare_seconds,
      tokens / prepare_seconds / 1e6);
  fmt::print("file: {}, {:.2f} bytes a token\n", human_bytes(std::filesystem::file_size(directory / "corpus.h5")),
             static_cast<double>(std::filesystem::file_size(directory / "corpus.h5")) / tokens);

  watch.restart();
  const data::Corpus corpus(directory / "corpus.h5");
  const double read_seconds = watch.restart();
  fmt::print("read and check: {:.2f} s, {:.1f} M tokens/s\n", read_seconds, tokens / read_seconds / 1e6);

  data::BatchOrder order(corpus, {});
  const int64_t batches = order.batches(0);
  fmt::print("order an epoch: {:.2f} s, {} batches\n", watch.restart(), batches);

  int64_t padded = 0;
  for (data::BatchPosition position; position.epoch == 0;) {
    const std::vector<int64_t> examples = order.next(position);
    padded += static_cast<int64_t>(data::pad_sources(corpus, examples, 0).tokens.size() +
                                   data::pad_targets(corpus, examples, 0).tokens.size());
  }
  const double batch_seconds = watch.seconds();
  fmt::print("read back as padded batches: {:.2f} s, {:.1f} M tokens/s, {:.1f} % padding\n", batch_seconds,
             tokens / batch_seconds / 1e6, 100 * (1 - tokens / static_cast<double>(padded)));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t pairs = argc > 1 ? std::atoll(argv[1]) : 1000000;
  const int64_t threads = argc > 2 ? std::atoll(argv[2]) : 2;
  run(pairs, threads);
  return 0;
}
