#include "data/corpus/corpus_targets.h"

#include <algorithm>

#include "base/error.h"

namespace draftsmith::data {

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
