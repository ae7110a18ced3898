#include "infer/drafters/drafter_source.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "model/kinds/tandem.h"

namespace draftsmith::infer {

namespace {

constexpr std::string_view kNgram = "ngram:";
constexpr std::string_view kLookup = "lookup";
constexpr std::string_view kExit = "exit:";

// Absent: not a number.
std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

int64_t parse_lookup(const std::string& number, const std::string& text) {
  const int64_t longest = parse_number(number).value_or(0);
  if (longest >= 1 && longest <= kMostLookup) return longest;
  throw UserError({.where = "drafter",
                   .what = "prompt look-up begins with n-grams of another length",
                   .expected = "lookup, or lookup:N with N from 1 to " + std::to_string(kMostLookup),
                   .found = text});
}

int64_t parse_exit(const std::string& text) {
  const int64_t layers = parse_number(std::string_view(text).substr(kExit.size())).value_or(0);
  if (layers >= 1) return layers;
  throw UserError({.where = "drafter",
                   .what = "an early exit drafts with the first layers of the model",
                   .expected = "exit:N with N from 1 to the model's number of decoder layers",
                   .found = text});
}

}  // namespace

std::string DrafterSource::text() const {
  if (lookup > 0) return std::string(kLookup) + ":" + std::to_string(lookup);
  if (exit > 0) return std::string(kExit) + std::to_string(exit);
  if (!ngram.empty()) return std::string(kNgram) + ngram.string();
  return tandem.empty() ? model.string() : tandem.string();
}

DrafterSource parse_drafter(const std::string& text) {
  if (text == kLookup) return {.lookup = kLongestLookup};
  if (text.starts_with(std::string(kLookup) + ":"))
    return {.lookup = parse_lookup(text.substr(kLookup.size() + 1), text)};
  if (text.starts_with(kExit)) return {.exit = parse_exit(text)};
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
