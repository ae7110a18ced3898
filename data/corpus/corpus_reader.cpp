#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"

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

constexpr Hdf5Format kCorpusFormat{"draftsmith corpus", CorpusInfo::kFormatVersion, "a Draftsmith corpus",
                                   "`draftsmith data prepare`"};

// Reads a corpus and checks that its parts fit together.
class CorpusChecks : Hdf5Checks {
 public:
  explicit CorpusChecks(const Hdf5Reader& input) : Hdf5Checks(input, kCorpusFormat) {}

  CorpusInfo info() const {
    check_format();
    CorpusInfo info;
    info.format_version = kCorpusFormat.version;
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
    check_equal("number of values in " + offsets_name, info.examples + 1,
                input_.shape(offsets_name, Hdf5Type::kInt64, 1)[0]);
    check_equal("number of values in " + tokens_name, token_count, input_.shape(tokens_name, Hdf5Type::kInt32, 1)[0]);
    Side side{.tokens = column<int32_t>(tokens_name), .offsets = column<int64_t>(offsets_name)};
    check_offsets(offsets_name, side.offsets, token_count);
    check_ids(tokens_name, side.tokens, info.vocabulary);
    return side;
  }

  const MappedFile& mapping() const { return mapping_; }

 private:
  template <class T>
  std::span<const T> column(const std::string& name) const {
    const Hdf5Place place = input_.place(name, hdf5_type<T>());
    return mapping_.values<T>(place.offset, place.count);
  }

  // Calls visit(first, values) for pieces in order, and drops the pages that it read.
  template <class T, class Visit>
  void in_pieces(std::span<const T> values, const Visit& visit) const {
    for (size_t first = 0; first < values.size(); first += kValuesAtOnce) {
      visit(first, values.subspan(first, std::min(kValuesAtOnce, values.size() - first)));
      mapping_.forget_pages();
    }
  }

  // Composes an error's text only if there is an error.
  void check_offsets(const std::string& name, std::span<const int64_t> offsets, int64_t tokens) const {
    check_equal(name + "[0]", 0, offsets.front());
    int64_t least = 0;
    in_pieces(offsets, [&](size_t first, std::span<const int64_t> piece) {
      for (size_t i = 0; i < piece.size(); ++i) {
        if (piece[i] < least || piece[i] > tokens) {
          check(false, fmt::format("{}[{}]", name, first + i), fmt::format("a value from {} to {}", least, tokens),
                std::to_string(piece[i]));
        }
        least = piece[i];
      }
    });
    check_equal(fmt::format("{}[{}]", name, offsets.size() - 1), tokens, offsets.back());
  }

  void check_ids(const std::string& name, std::span<const int32_t> tokens, int64_t vocabulary) const {
    in_pieces(tokens, [&](size_t first, std::span<const int32_t> piece) {
      const auto bad = std::find_if(piece.begin(), piece.end(), [&](int32_t id) { return id < 0 || id >= vocabulary; });
      if (bad == piece.end()) return;
      check(false, fmt::format("{}[{}]", name, first + static_cast<size_t>(bad - piece.begin())),
            fmt::format("an id from 0 to {}", vocabulary - 1), std::to_string(*bad));
    });
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

constexpr int64_t kTokensAtOnce = int64_t{1} << 20;    // tokens in memory; a longer row is read whole
constexpr int64_t kExamplesAtOnce = int64_t{1} << 16;  // maximum examples of a block
constexpr const char* kOffsets = "/target/offsets";
constexpr const char* kTokens = "/target/tokens";

}  // namespace

CorpusTargets::CorpusTargets(const std::filesystem::path& file) : input_(file), info_(read_corpus_info(file)) {
  const int64_t offsets = input_.shape(kOffsets, Hdf5Type::kInt64, 1)[0];
  if (info_.examples < 0 || info_.examples != offsets - 1) {
    fail("number of examples", std::to_string(offsets - 1), std::to_string(info_.examples));
  }
  const int64_t tokens = input_.shape(kTokens, Hdf5Type::kInt32, 1)[0];
  if (info_.target_tokens != tokens) {
    fail("number of target tokens", std::to_string(tokens), std::to_string(info_.target_tokens));
  }
  if (info_.vocabulary < 1) fail("vocabulary", "at least 1", std::to_string(info_.vocabulary));
}

void CorpusTargets::fail(const std::string& what, const std::string& expected, const std::string& found) const {
  throw UserError({.where = input_.file().string(),
                   .what = what,
                   .expected = expected,
                   .found = found,
                   .hint = "the corpus is damaged; make it again with `draftsmith data prepare`"});
}

void CorpusTargets::read(const std::function<void(std::span<const int32_t>)>& visit,
                         const ProgressCallback& progress) const {
  int64_t done = 0;  // tokens
  for (int64_t first = 0; first < info_.examples;) {
    const int64_t most = std::min(kExamplesAtOnce, info_.examples - first);
    const auto offsets = input_.read_rows<int64_t>(kOffsets, 1, first, most + 1);
    check_offsets(offsets, first);
    const auto end = std::upper_bound(offsets.begin() + 2, offsets.end(), offsets.front() + kTokensAtOnce) - 1;
    const int64_t count = end - offsets.begin();  // at least one example
    const auto tokens = input_.read_rows<int32_t>(kTokens, 1, offsets.front(), *end - offsets.front());
    check_ids(tokens, offsets.front());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      visit(std::span(tokens).subspan(static_cast<size_t>(offsets[i] - offsets.front()),
                                      static_cast<size_t>(offsets[i + 1] - offsets[i])));
    }
    done += static_cast<int64_t>(tokens.size());
    first += count;
    if (progress) progress(count);
  }
  if (done != info_.target_tokens) {
    fail(std::string("tokens of ") + kOffsets, std::to_string(info_.target_tokens), std::to_string(done));
  }
}

void CorpusTargets::check_offsets(const std::vector<int64_t>& offsets, int64_t first) const {
  int64_t least = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < least || offsets[i] > info_.target_tokens) {
      fail(std::string(kOffsets) + "[" + std::to_string(first + static_cast<int64_t>(i)) + "]",
           "a value from " + std::to_string(least) + " to " + std::to_string(info_.target_tokens),
           std::to_string(offsets[i]));
    }
    least = offsets[i];
  }
}

void CorpusTargets::check_ids(const std::vector<int32_t>& tokens, int64_t first) const {
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) { return id < 0 || id >= info_.vocabulary; });
  if (bad == tokens.end()) return;
  fail(std::string(kTokens) + "[" + std::to_string(first + (bad - tokens.begin())) + "]",
       "an id from 0 to " + std::to_string(info_.vocabulary - 1), std::to_string(*bad));
}

}  // namespace draftsmith::data
