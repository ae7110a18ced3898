#include "base/error.h"

#include <algorithm>
#include <numeric>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string text = problem.where.empty() ? problem.what : problem.where + ": " + problem.what;
  if (!problem.expected.empty()) text += "\n  expected: " + problem.expected;
  if (!problem.found.empty()) text += "\n  found:    " + problem.found;
  if (!problem.hint.empty()) text += "\n  hint:     " + problem.hint;
  return text;
}

Error::Error(std::vector<Problem> problems)
    : std::runtime_error(fmt::format("{}", fmt::join(problems | std::views::transform(to_string), "\n"))),
      problems_(std::move(problems)) {}

void Problems::add_all(const std::vector<Problem>& problems, const std::string& prefix) {
  for (Problem problem : problems) {
    problem.where = prefix + problem.where;
    if (std::ranges::find(list_, problem) == list_.end()) add(std::move(problem));
  }
}

void Problems::throw_if_any() const {
  if (!list_.empty()) throw UserError(list_);
}

Problem other_line_count(std::string where, std::string what, size_t found, size_t expected, const std::string& other,
                         std::string hint) {
  return {std::move(where), std::move(what), fmt::format("{} lines, as in {}", expected, other),
          fmt::format("{} lines", found), std::move(hint)};
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Problem unknown_name(const std::string& subject, const std::string& name, const std::vector<std::string>& known,
                     const std::string& where) {
  const std::string near = nearest(name, known);
  return {.where = where.empty() ? subject : where,
          .what = fmt::format("there is no {} of this name", subject),
          .expected = fmt::format("one of {}", fmt::join(known, ", ")),
          .found = name.substr(0, 100),
          .hint = near.empty() ? "" : fmt::format("did you mean {}?", near)};
}

}  // namespace draftsmith
