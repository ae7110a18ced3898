#include "data/corpus/show.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::data {

namespace {

constexpr int64_t kBarWidth = 40;

std::string ids_text(std::span<const int32_t> ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

std::string row_text(std::span<const int32_t> ids, const Tokenizer* tokenizer) {
  return tokenizer == nullptr ? ids_text(ids) : tokenizer->decode(ids) + "\n             ids " + ids_text(ids);
}

void check_tokenizer(const Corpus& corpus, const Tokenizer& tokenizer) {
  if (tokenizer.hash() == corpus.info().tokenizer_hash) return;
  throw UserError({.where = corpus.file().string(),
                   .what = "made with another tokenizer than " + tokenizer.file().string(),
                   .expected = "tokenizer " + corpus.info().tokenizer_hash,
                   .found = "tokenizer " + tokenizer.hash()});
}

std::string info_text(const Corpus& corpus) {
  const CorpusInfo& info = corpus.info();
  std::string text = fmt::format("{}: Draftsmith corpus, format {}\n", corpus.file().string(), info.format_version);
  text += fmt::format("  examples       {}\n  source tokens  {}\n  target tokens  {}\n", info.examples,
                      info.source_tokens, info.target_tokens);
  text += fmt::format("  vocabulary     {}\n  tokenizer      {}\n", info.vocabulary, info.tokenizer_hash);
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, value);
  return text;
}

}  // namespace

std::string length_histogram(const std::string& title, const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return title + ": none\n";
  std::vector<int64_t> counts;
  for (const int64_t length : lengths) {
    const auto bucket = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)));
    counts.resize(std::max(counts.size(), bucket + 1));
    ++counts[bucket];
  }
  const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                      static_cast<double>(lengths.size());
  std::string text =
      fmt::format("{}: mean {:.1f}, longest {}\n", title, mean, *std::max_element(lengths.begin(), lengths.end()));
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    const int64_t low = bucket == 0 ? 0 : int64_t{1} << (bucket - 1);
    const int64_t high = bucket == 0 ? 0 : low * 2 - 1;
    const std::string range = low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
    const auto bar = static_cast<size_t>((counts[bucket] * kBarWidth + most - 1) / most);
    text += fmt::format("  {:>13} {:>9} {}\n", range, counts[bucket], std::string(bar, '#'));
  }
  return text;
}

std::string describe_corpus(const Corpus& corpus, const ShowOptions& options) {
  if (options.tokenizer != nullptr) check_tokenizer(corpus, *options.tokenizer);
  std::vector<int64_t> sources;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    sources.push_back(static_cast<int64_t>(corpus.source(i).size()));
    targets.push_back(static_cast<int64_t>(corpus.target(i).size()));
  }
  std::string text = info_text(corpus);
  text += length_histogram("source lengths, tokens", sources);
  text += length_histogram("target lengths, tokens", targets);
  for (int64_t i = 0; i < std::min(options.examples, corpus.size()); ++i) {
    text += fmt::format("example {}\n  source: {}\n  target: {}\n", i, row_text(corpus.source(i), options.tokenizer),
                        row_text(corpus.target(i), options.tokenizer));
  }
  return text;
}

}  // namespace draftsmith::data
