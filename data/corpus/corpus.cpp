#include "data/corpus/corpus.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/table.h"
#include "data/hdf5/hdf5.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

namespace {

// A limit beyond any use; one more still fits int64.
constexpr int64_t kMostExamples = int64_t{1} << 48;

// Values between two looks at how many pages of the file are in memory.
constexpr size_t kValuesAtOnce = size_t{1} << 22;

struct Side {
  std::span<const int32_t> tokens;
  std::span<const int64_t> offsets;

  std::span<const int32_t> row(int64_t example) const {
    const int64_t begin = offsets[static_cast<size_t>(example)];
    const int64_t end = offsets[static_cast<size_t>(example) + 1];
    return tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
};

constexpr Hdf5Format kCorpusFormat{"draftsmith corpus", 1, "a Draftsmith corpus", "`draftsmith data prepare`"};

// Reads a corpus and checks that its parts fit together.
class CorpusChecks : Hdf5Checks {
 public:
  explicit CorpusChecks(const Hdf5Reader& input) : Hdf5Checks(input, kCorpusFormat) {}

  CorpusInfo info() const {
    check_format();
    CorpusInfo info;
    info.tokenizer_hash = input_.string_attribute("/", "tokenizer_hash");
    info.vocabulary = input_.integer_attribute("/", "vocabulary");
    info.examples = input_.integer_attribute("/", "examples");
    info.source_tokens = input_.integer_attribute("/", "source_tokens");
    info.target_tokens = input_.integer_attribute("/", "target_tokens");
    info.provenance = input_.string_attributes("/provenance");
    return info;
  }

  void check_examples(const CorpusInfo& info) const {
    check_range("number of examples", info.examples, 0, kMostExamples);
  }

  Side side(const std::string& group, const CorpusInfo& info, int64_t token_count) const {
    const std::string tokens_name = group + "/tokens";
    const std::string offsets_name = group + "/offsets";
    const Side side{.tokens = mapped<int32_t>(mapping_, tokens_name, {token_count}),
                    .offsets = mapped<int64_t>(mapping_, offsets_name, {info.examples + 1})};
    check_offsets(offsets_name, side.offsets, token_count);
    check_ids(tokens_name, side.tokens, info.vocabulary);
    return side;
  }

  const MappedFile& mapping() const { return mapping_; }

 private:
  // Drops the pages that it has read.
  void check_ids(const std::string& name, std::span<const int32_t> tokens, int64_t vocabulary) const {
    for (size_t first = 0; first < tokens.size(); first += kValuesAtOnce) {
      const auto piece = tokens.subspan(first, std::min(kValuesAtOnce, tokens.size() - first));
      const auto bad = std::ranges::find_if(piece, [&](int32_t id) { return id < 0 || id >= vocabulary; });
      mapping_.forget_pages();
      if (bad == piece.end()) continue;
      check(false, fmt::format("{}[{}]", name, first + static_cast<size_t>(bad - piece.begin())),
            fmt::format("an id from 0 to {}", vocabulary - 1), std::to_string(*bad));
    }
  }

  MappedFile mapping_{input_.file()};
};

}  // namespace

struct Corpus::Impl {
  std::filesystem::path file;
  CorpusInfo info;
  MappedFile mapping;
  Side source;
  Side target;
};

Corpus::Corpus(const std::filesystem::path& file) : impl_(std::make_unique<Impl>()) {
  const Hdf5Reader input(file);
  impl_->file = file;
  const CorpusChecks checks(input);
  impl_->info = checks.info();
  checks.check_examples(impl_->info);
  impl_->mapping = checks.mapping();
  impl_->source = checks.side("/source", impl_->info, impl_->info.source_tokens);
  impl_->target = checks.side("/target", impl_->info, impl_->info.target_tokens);
}

Corpus::~Corpus() = default;
Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;

const CorpusInfo& Corpus::info() const {
  return impl_->info;
}
const std::filesystem::path& Corpus::file() const {
  return impl_->file;
}
int64_t Corpus::size() const {
  return impl_->info.examples;
}
std::span<const int32_t> Corpus::source(int64_t example) const {
  return impl_->source.row(example);
}
std::span<const int32_t> Corpus::target(int64_t example) const {
  return impl_->target.row(example);
}

bool continues_prompts(const CorpusInfo& info) {
  const auto prompts = info.provenance.find("prompts");
  return info.source_tokens == 0 || (prompts != info.provenance.end() && prompts->second == "true");
}

CorpusInfo read_corpus_info(const std::filesystem::path& file) {
  const Hdf5Reader input(file);
  return CorpusChecks(input).info();
}

namespace {

constexpr int64_t kAlignment = 8;  // of the widest values, for mapping

// One side of a corpus while it grows: contiguous datasets need their sizes when they are created.
struct SpilledSide {
  SpilledSide(std::string group, const std::filesystem::path& folder)
      : name(std::move(group)), tokens(folder / (name + "-tokens")), offsets(folder / (name + "-offsets")) {
    offsets.add(0);
  }

  void add(std::span<const int32_t> row) {
    tokens.add(row);
    offsets.add(tokens.count());
  }

  void write(Hdf5Writer& output) {
    tokens.close();
    offsets.close();
    output.write_array("/" + name + "/tokens", all_values<int32_t>(tokens.map()));
    output.write_array("/" + name + "/offsets", all_values<int64_t>(offsets.map()));
  }

  std::string name;
  SpillFile<int32_t> tokens;
  SpillFile<int64_t> offsets;
};

}  // namespace

struct CorpusWriter::Impl {
  Impl(std::filesystem::path name, CorpusInfo about) : file(std::move(name)), info(std::move(about)) {}

  void check(const std::string& side, std::span<const int32_t> row) const {
    const auto bad = std::find_if(row.begin(), row.end(), [&](int32_t id) { return id < 0 || id >= info.vocabulary; });
    if (bad == row.end()) return;
    throw std::logic_error("corpus " + side + " row " + std::to_string(examples) + ": id " + std::to_string(*bad) +
                           " outside the vocabulary of " + std::to_string(info.vocabulary));
  }

  // Beside the file, where there is room for it.
  static std::filesystem::path made(const std::filesystem::path& folder) {
    make_directories(folder);
    return folder;
  }

  std::filesystem::path file;
  CorpusInfo info;
  AtomicPath spilled{file.string() + ".spilled"};  // never committed, so removed
  SpilledSide source{"source", made(spilled.temporary())};
  SpilledSide target{"target", spilled.temporary()};
  int64_t examples = 0;
};

CorpusWriter::CorpusWriter(const std::filesystem::path& file, CorpusInfo info)
    : impl_(std::make_unique<Impl>(file, std::move(info))) {}

CorpusWriter::~CorpusWriter() = default;

void CorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  impl_->check("source", source);
  impl_->check("target", target);
  impl_->source.add(source);
  impl_->target.add(target);
  ++impl_->examples;
}

void CorpusWriter::set_provenance(const std::string& key, const std::string& value) {
  impl_->info.provenance[key] = value;
}

int64_t CorpusWriter::examples() const {
  return impl_->examples;
}

void CorpusWriter::finish() {
  Hdf5Writer output(impl_->file, kAlignment);
  impl_->source.write(output);
  impl_->target.write(output);
  output.set_format(kCorpusFormat, impl_->info.provenance);
  output.set_attribute("/", "tokenizer_hash", impl_->info.tokenizer_hash);
  output.set_attribute("/", "vocabulary", impl_->info.vocabulary);
  output.set_attribute("/", "examples", impl_->examples);
  output.set_attribute("/", "source_tokens", impl_->source.tokens.count());
  output.set_attribute("/", "target_tokens", impl_->target.tokens.count());
  output.finish();
}

void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info) {
  CorpusWriter writer(file, info);
  for (const std::filesystem::path& part : parts) {
    const Corpus corpus(part);
    if (corpus.info().tokenizer_hash != info.tokenizer_hash || corpus.info().vocabulary != info.vocabulary) {
      throw UserError({.where = part.string(),
                       .what = "made with another tokenizer than the corpus to which it would be added",
                       .expected = "tokenizer " + info.tokenizer_hash,
                       .found = "tokenizer " + corpus.info().tokenizer_hash});
    }
    for (int64_t i = 0; i < corpus.size(); ++i) writer.add(corpus.source(i), corpus.target(i));
  }
  writer.finish();
}

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
  std::string text = fmt::format("Draftsmith corpus, format {}\n", kCorpusFormat.version);
  text += fmt::format("  examples       {}\n  source tokens  {}\n  target tokens  {}\n", info.examples,
                      info.source_tokens, info.target_tokens);
  text += fmt::format("  vocabulary     {}\n  tokenizer      {}\n", info.vocabulary, info.tokenizer_hash);
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  return text;
}

// Returns a histogram of lengths, one line with a bar for each bin [0], [1], [2,3], [4,7], [8,15], ..., with mean and
// maximum.
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
  text += length_histogram("source lengths, tokens", sources);
  text += length_histogram("target lengths, tokens", targets);
  for (int64_t i = 0; i < std::min(examples, corpus.size()); ++i) {
    text += fmt::format("example {}\n  source: {}\n  target: {}\n", i, row_text(corpus.source(i), tokenizer),
                        row_text(corpus.target(i), tokenizer));
  }
  return text;
}

}  // namespace draftsmith::data
