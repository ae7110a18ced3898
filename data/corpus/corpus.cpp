#include "data/corpus/corpus.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/table.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {
namespace {

// A limit beyond any use; one more still fits int64.
constexpr int64_t kMostExamples = int64_t{1} << 48;

// Values between two looks at how many pages of the file are in memory.
constexpr size_t kValuesAtOnce = size_t{1} << 22;

constexpr Hdf5Format kCorpusFormat{"draftsmith corpus", 1, "a Draftsmith corpus", "a stage of kind corpus"};

CorpusInfo corpus_attributes(const Hdf5Reader& input) {
  return {.tokenizer_hash = input.text("tokenizer_hash"),
          .vocabulary = input.number("vocabulary", 0, INT64_MAX),
          .examples = input.number("examples", 0, kMostExamples),
          .source_tokens = input.number("source_tokens", 0, INT64_MAX),
          .target_tokens = input.number("target_tokens", 0, INT64_MAX),
          .provenance = input.provenance()};
}

}  // namespace

Corpus::Corpus(const std::filesystem::path& file) : file_(file) {
  const Hdf5Reader input(file, kCorpusFormat);
  info_ = corpus_attributes(input);
  mapping_ = input.mapping();
  source_ = side(input, "/source", info_.source_tokens);
  target_ = side(input, "/target", info_.target_tokens);
}

// Drops the pages that it has read.
Corpus::Side Corpus::side(const Hdf5Reader& input, const std::string& group, int64_t token_count) const {
  const auto tokens = input.values<int32_t>(group + "/tokens", {token_count});
  for (size_t first = 0; first < tokens.size(); first += kValuesAtOnce) {
    const auto piece = tokens.subspan(first, std::min(kValuesAtOnce, tokens.size() - first));
    const auto bad = std::ranges::find_if(piece, [&](int32_t id) { return id < 0 || id >= info_.vocabulary; });
    mapping_.forget_pages();
    if (bad == piece.end()) continue;
    input.check(false, fmt::format("{}/tokens[{}]", group, first + static_cast<size_t>(bad - piece.begin())),
                fmt::format("an id from 0 to {}", info_.vocabulary - 1), std::to_string(*bad));
  }
  return {tokens, input.offsets(group + "/offsets", info_.examples, token_count)};
}

std::span<const int32_t> Corpus::Side::row(int64_t example) const {
  const int64_t begin = offsets[static_cast<size_t>(example)];
  const int64_t end = offsets[static_cast<size_t>(example) + 1];
  return tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

bool continues_prompts(const CorpusInfo& info) {
  const auto prompts = info.provenance.find("prompts");
  return info.source_tokens == 0 || (prompts != info.provenance.end() && prompts->second == "true");
}

bool is_plain_text(const CorpusInfo& info) {
  return info.examples > 0 && info.source_tokens == 0;
}

void check_form(const Corpus& corpus, bool encoder_decoder, Problems& problems) {
  const CorpusInfo& info = corpus.info();
  const std::string where = corpus.file().string();
  if (encoder_decoder && is_plain_text(info)) {
    problems.add({where, "it has no sources, so an encoder reads nothing", "pairs of source and target", "plain text",
                  "prepare the corpus with `source` and `target`, or take a decoder-only model"});
  }
  if (encoder_decoder || continues_prompts(info)) return;
  problems.add({where, "its sources end in EOS, but a decoder-only model continues its prompts",
                "a corpus prepared with prompts = true, or plain text", "sources for an encoder",
                "set prompts = true in the corpus stage"});
}

CorpusInfo read_corpus_info(const std::filesystem::path& file) {
  return corpus_attributes(Hdf5Reader(file, kCorpusFormat));
}

CorpusWriter::Side::Side(const std::filesystem::path& folder)
    : tokens((make_directories(folder), folder / "tokens")), offsets(folder / "offsets") {
  offsets.add(0);
}

CorpusWriter::CorpusWriter(const std::filesystem::path& file, CorpusInfo info)
    : file_(file),
      info_(std::move(info)),
      spilled_(file.string() + ".spilled"),
      source_(spilled_.temporary() / "source"),
      target_(spilled_.temporary() / "target") {}

void CorpusWriter::add(Side& side, std::span<const int32_t> row) {
  const auto bad = std::ranges::find_if(row, [&](int32_t id) { return id < 0 || id >= info_.vocabulary; });
  if (bad != row.end()) throw std::logic_error(fmt::format("corpus row {}: id {}", examples_, *bad));
  side.tokens.add(row);
  side.offsets.add(side.tokens.count());
}

void CorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  add(source_, source);
  add(target_, target);
  ++examples_;
}

void CorpusWriter::set_provenance(const std::string& key, const std::string& value) {
  info_.provenance[key] = value;
}

void CorpusWriter::finish() {
  Hdf5Writer output(file_);
  for (auto* side : {&source_, &target_}) {
    const std::string group = side == &source_ ? "/source" : "/target";
    side->tokens.close();
    side->offsets.close();
    output.write_array(group + "/tokens", side->tokens.map().values<int32_t>(0, side->tokens.count()));
    output.write_array(group + "/offsets", side->offsets.map().values<int64_t>(0, side->offsets.count()));
  }
  output.set_format(kCorpusFormat, info_.provenance);
  output.set_attribute("/", "tokenizer_hash", info_.tokenizer_hash);
  output.set_attribute("/", "vocabulary", info_.vocabulary);
  output.set_attribute("/", "examples", examples_);
  output.set_attribute("/", "source_tokens", source_.tokens.count());
  output.set_attribute("/", "target_tokens", target_.tokens.count());
  output.finish();
}

void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info) {
  CorpusWriter writer(file, info);
  for (const std::filesystem::path& part : parts) {
    const Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) {
      work_point();
      writer.add(corpus.source(i), corpus.target(i));
    }
  }
  writer.finish();
}

namespace {

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
  std::string text = fmt::format("Draftsmith corpus, format {}\n", kCorpusFormat.version);
  text += fmt::format("  examples       {}\n  source tokens  {}\n  target tokens  {}\n", info.examples,
                      info.source_tokens, info.target_tokens);
  text += fmt::format("  vocabulary     {}\n  tokenizer      {}\n", info.vocabulary, info.tokenizer_hash);
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  return text;
}

std::string length_text(const std::string& title, std::vector<int64_t> lengths) {
  if (lengths.empty()) return title + ": none\n";
  std::ranges::sort(lengths);
  const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                      static_cast<double>(lengths.size());
  return fmt::format("{}: mean {:.1f}, median {}, 95 % up to {}, longest {}\n", title, mean,
                     lengths[lengths.size() / 2], lengths[lengths.size() * 19 / 20], lengths.back());
}

}  // namespace

std::string describe_corpus(const Corpus& corpus, const Tokenizer* tokenizer, int64_t examples) {
  if (tokenizer != nullptr) check_tokenizer(corpus, *tokenizer);
  std::vector<int64_t> sources;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    sources.push_back(static_cast<int64_t>(corpus.source(i).size()));
    targets.push_back(static_cast<int64_t>(corpus.target(i).size()));
  }
  std::string text = info_text(corpus);
  text += length_text("source lengths, tokens", sources);
  text += length_text("target lengths, tokens", targets);
  for (int64_t i = 0; i < std::min(examples, corpus.size()); ++i) {
    text += fmt::format("example {}\n  source: {}\n  target: {}\n", i, row_text(corpus.source(i), tokenizer),
                        row_text(corpus.target(i), tokenizer));
  }
  return text;
}

}  // namespace draftsmith::data
