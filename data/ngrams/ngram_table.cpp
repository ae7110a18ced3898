#include "data/ngrams/ngram_table.h"

#include <cstdint>

#include <fmt/format.h>

#include "data/hdf5/hdf5_checks.h"
#include "data/ngrams/ngram_keys.h"

namespace draftsmith::data {

namespace {

constexpr Hdf5Format kNgramFormat{"draftsmith ngrams", NgramInfo::kFormatVersion, "an n-gram table",
                                  "`draftsmith data ngrams`"};

// Reads the arrays of a mapped table and checks that they fit together.
class TableReader : Hdf5Checks {
 public:
  TableReader(const Hdf5Reader& input, const MappedFile& mapping)
      : Hdf5Checks(input, kNgramFormat), mapping_(mapping) {}

  NgramInfo info() const {
    check_format();
    NgramInfo info;
    info.tokenizer_hash = input_.string_attribute("/", "tokenizer_hash");
    info.vocabulary = input_.integer_attribute("/", "vocabulary");
    info.order = input_.integer_attribute("/", "order");
    info.examples = input_.integer_attribute("/", "examples");
    info.target_tokens = input_.integer_attribute("/", "target_tokens");
    info.provenance = input_.string_attributes("/provenance");
    check_range("vocabulary", info.vocabulary, 1, kMostNgramIds);
    check_range("order", info.order, 1, 3);
    return info;
  }

  std::span<const int32_t> unigrams(const NgramInfo& info) const {
    const auto counts = array<int32_t>("/unigrams/counts", info.vocabulary);
    int64_t sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] < 0) check_range(fmt::format("/unigrams/counts[{}]", i), counts[i], 0, INT32_MAX);
      sum += counts[i];
    }
    check(sum == info.target_tokens, "sum of /unigrams/counts", std::to_string(info.target_tokens),
          std::to_string(sum));
    return counts;
  }

  NgramLevel level(const std::string& group, int64_t contexts, int64_t vocabulary) const {
    NgramLevel level;
    level.children = array<int64_t>(group + "/children", contexts + 1);
    level.totals = array<int32_t>(group + "/totals", contexts);
    level.best = array<int32_t>(group + "/best", contexts);
    level.tokens = array<int32_t>(group + "/tokens", -1);
    const auto size = static_cast<int64_t>(level.tokens.size());
    level.counts = array<int32_t>(group + "/counts", size);
    check(level.children.front() == 0 && level.children.back() == size, "ends of " + group + "/children",
          "0 and " + std::to_string(size), fmt::format("{} and {}", level.children.front(), level.children.back()));
    for (int64_t context = 0; context < contexts; ++context) check_context(group, level, context, vocabulary);
    return level;
  }

 private:
  // `count` -1: any number.
  template <class T>
  std::span<const T> array(const std::string& name, int64_t count) const {
    const Hdf5Place place = input_.place(name, hdf5_type<T>());
    check(count < 0 || place.count == count, "number of values in " + name, std::to_string(count),
          std::to_string(place.count));
    return mapping_.values<T>(place.offset, place.count);
  }

  void check_context(const std::string& group, const NgramLevel& level, int64_t context, int64_t vocabulary) const {
    const auto at = static_cast<size_t>(context);
    const auto name = [&](const char* array, int64_t i) { return fmt::format("{}/{}[{}]", group, array, i); };
    const int64_t begin = level.children[at];
    const int64_t end = level.children[at + 1];
    // Composes an error's text only if there is an error.
    if (end < begin || end > level.children.back()) {
      check(false, name("children", context + 1), fmt::format("{} to {}", begin, level.children.back()),
            std::to_string(end));
    }
    int64_t least = 0;  // tokens ascend
    int64_t total = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = level.tokens[static_cast<size_t>(i)];
      const int64_t count = level.counts[static_cast<size_t>(i)];
      if (token < least || token >= vocabulary) check_range(name("tokens", i), token, least, vocabulary - 1);
      if (count < 1) check_range(name("counts", i), count, 1, INT32_MAX);
      least = token + 1;
      total += count;
    }
    const int64_t said = level.totals[at];
    if (said != total) check_range(name("totals", context), said, total, total);
    const int64_t best = level.best[at];
    if (best < 0 || best >= vocabulary) check_range(name("best", context), best, 0, vocabulary - 1);
  }

  const MappedFile& mapping_;
};

}  // namespace

NgramTable::NgramTable(const std::filesystem::path& file) : file_(file), mapping_(file) {
  const Hdf5Reader input(file);
  const TableReader reader(input, mapping_);
  info_ = reader.info();
  const auto unigrams = reader.unigrams(info_);
  NgramLevel bigrams;
  NgramLevel trigrams;
  if (info_.order > 1) bigrams = reader.level("/bigrams", info_.vocabulary + 1, info_.vocabulary);
  if (info_.order > 2) {
    trigrams = reader.level("/trigrams", static_cast<int64_t>(bigrams.tokens.size()), info_.vocabulary);
  }
  counts_ = NgramCounts(unigrams, bigrams, trigrams);
}

std::string NgramReport::text() const {
  return fmt::format("{} examples, {} target tokens, {} different bigrams and {} trigrams", examples, target_tokens,
                     bigrams, trigrams);
}

std::string describe_ngram_table(const NgramTable& table) {
  const NgramInfo& info = table.info();
  std::string text = fmt::format("n-gram table of order {}: {} examples, {} target tokens\n", info.order, info.examples,
                                 info.target_tokens);
  text += fmt::format("  vocabulary {}, tokenizer sha256 {}\n", info.vocabulary, info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, value);
  return text;
}

bool is_ngram_table(const std::filesystem::path& file) {
  return has_hdf5_format(file, kNgramFormat.name);
}

}  // namespace draftsmith::data
