#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/corpus.h"
#include "data/hdf5.h"

namespace draftsmith::data {

namespace {

// Far beyond use, and one more of them still fits int64.
constexpr int64_t kMostExamples = int64_t{1} << 48;

// One ragged side in memory.
struct Side {
  std::vector<int32_t> tokens;
  std::vector<int64_t> offsets;

  std::span<const int32_t> row(int64_t example) const {
    const int64_t begin = offsets[static_cast<size_t>(example)];
    const int64_t end = offsets[static_cast<size_t>(example) + 1];
    return std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
};

[[noreturn]] void fail(const Hdf5Reader& input, const std::string& what, const std::string& expected,
                       const std::string& found) {
  throw UserError({.where = input.file().string(),
                   .what = what,
                   .expected = expected,
                   .found = found,
                   .hint = "the file is damaged or not a corpus of this version; make it again with "
                           "`draftsmith data prepare`"});
}

void check_equal(const Hdf5Reader& input, const std::string& what, int64_t expected, int64_t found) {
  if (expected != found) fail(input, what, std::to_string(expected), std::to_string(found));
}

CorpusInfo read_info(const Hdf5Reader& input) {
  if (!input.has_attribute("/", "format") || input.string_attribute("/", "format") != "draftsmith corpus") {
    fail(input, "not a Draftsmith corpus", "attribute format \"draftsmith corpus\"",
         input.has_attribute("/", "format") ? input.string_attribute("/", "format") : "no such attribute");
  }
  CorpusInfo info;
  info.format_version = input.integer_attribute("/", "format_version");
  check_equal(input, "another format version", CorpusInfo::kFormatVersion, info.format_version);
  info.tokenizer_hash = input.string_attribute("/", "tokenizer_hash");
  info.vocabulary = input.integer_attribute("/", "vocabulary");
  info.examples = input.integer_attribute("/", "examples");
  info.source_tokens = input.integer_attribute("/", "source_tokens");
  info.target_tokens = input.integer_attribute("/", "target_tokens");
  info.provenance = input.string_attributes("/provenance");
  return info;
}

void check_offsets(const Hdf5Reader& input, const std::string& name, const std::vector<int64_t>& offsets,
                   int64_t tokens) {
  if (offsets.front() != 0) fail(input, name + "[0]", "0", std::to_string(offsets.front()));
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1] || offsets[i] > tokens) {
      fail(input, name + "[" + std::to_string(i) + "]",
           "a value from " + std::to_string(offsets[i - 1]) + " to " + std::to_string(tokens),
           std::to_string(offsets[i]));
    }
  }
  if (offsets.back() != tokens) {
    fail(input, name + "[" + std::to_string(offsets.size() - 1) + "]", std::to_string(tokens),
         std::to_string(offsets.back()));
  }
}

Side read_side(const Hdf5Reader& input, const std::string& group, const CorpusInfo& info, int64_t token_count) {
  const std::string tokens_name = group + "/tokens";
  const std::string offsets_name = group + "/offsets";
  check_equal(input, "number of values in " + offsets_name, info.examples + 1,
              input.shape(offsets_name, Hdf5Type::kInt64, 1)[0]);
  check_equal(input, "number of values in " + tokens_name, token_count,
              input.shape(tokens_name, Hdf5Type::kInt32, 1)[0]);
  Side side;
  side.offsets = input.read<int64_t>(offsets_name);
  check_offsets(input, offsets_name, side.offsets, token_count);
  side.tokens = input.read<int32_t>(tokens_name);
  const auto bad =
      std::find_if(side.tokens.begin(), side.tokens.end(), [&](int32_t id) { return id < 0 || id >= info.vocabulary; });
  if (bad != side.tokens.end()) {
    fail(input, tokens_name + "[" + std::to_string(bad - side.tokens.begin()) + "]",
         "an id from 0 to " + std::to_string(info.vocabulary - 1), std::to_string(*bad));
  }
  return side;
}

}  // namespace

struct Corpus::Impl {
  std::filesystem::path file;
  CorpusInfo info;
  Side source;
  Side target;
};

Corpus::Corpus(const std::filesystem::path& file) : impl_(std::make_unique<Impl>()) {
  const Hdf5Reader input(file);
  impl_->file = file;
  impl_->info = read_info(input);
  if (impl_->info.examples < 0 || impl_->info.examples > kMostExamples) {
    fail(input, "number of examples", "0 to " + std::to_string(kMostExamples), std::to_string(impl_->info.examples));
  }
  impl_->source = read_side(input, "/source", impl_->info, impl_->info.source_tokens);
  impl_->target = read_side(input, "/target", impl_->info, impl_->info.target_tokens);
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
  return read_info(Hdf5Reader(file));
}

}  // namespace draftsmith::data
