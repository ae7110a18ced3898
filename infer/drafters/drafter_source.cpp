#include "infer/drafters/drafter_source.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "model/tandem.h"

namespace draftsmith::infer {

namespace {

constexpr std::string_view kNgram = "ngram:";
constexpr std::string_view kLookup = "lookup";

int64_t parse_lookup(const std::string& number, const std::string& text) {
  int64_t longest = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), longest);
  const bool whole = error == std::errc{} && end == number.data() + number.size();
  if (whole && longest >= 1 && longest <= kMostLookup) return longest;
  throw UserError({.where = "drafter",
                   .what = "prompt look-up begins with n-grams of another length",
                   .expected = "lookup, or lookup:N with N from 1 to " + std::to_string(kMostLookup),
                   .found = text});
}

}  // namespace

std::string DrafterSource::text() const {
  if (lookup > 0) return std::string(kLookup) + ":" + std::to_string(lookup);
  if (!ngram.empty()) return std::string(kNgram) + ngram.string();
  return tandem.empty() ? model.string() : tandem.string();
}

DrafterSource parse_drafter(const std::string& text) {
  if (text == kLookup) return {.lookup = kLongestLookup};
  if (text.starts_with(std::string(kLookup) + ":"))
    return {.lookup = parse_lookup(text.substr(kLookup.size() + 1), text)};
  if (!text.starts_with(kNgram)) {
    return model::is_tandem_directory(text) ? DrafterSource{.tandem = text} : DrafterSource{.model = text};
  }
  if (text != kNgram) return {.ngram = text.substr(kNgram.size())};
  throw UserError({.where = "drafter",
                   .what = "an n-gram drafter needs its table",
                   .expected = "ngram:FILE",
                   .found = text,
                   .hint = "make one with `draftsmith data ngrams`"});
}

}  // namespace draftsmith::infer
