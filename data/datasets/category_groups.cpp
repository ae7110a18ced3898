#include "data/datasets/category_groups.h"

#include <algorithm>
#include <array>

#include "base/registry.h"

namespace draftsmith::data {

namespace {

// Spec-Bench's categories that come from MT-Bench, which its tables give as one.
constexpr const char* kMtBench = "mt_bench";
constexpr std::array<const char*, 8> kMtBenchCategories{"writing", "roleplay",   "reasoning", "math",
                                                        "coding",  "extraction", "stem",      "humanities"};

bool from_mt_bench(const std::string& category) {
  return std::find(kMtBenchCategories.begin(), kMtBenchCategories.end(), category) != kMtBenchCategories.end();
}

}  // namespace

std::vector<CategoryGroup> category_groups(const JsonlSummary& summary) {
  const auto of_mt_bench = std::count_if(summary.categories.begin(), summary.categories.end(),
                                         [](const JsonlCategory& category) { return from_mt_bench(category.name); });
  const bool joined = of_mt_bench == std::ssize(kMtBenchCategories);
  std::vector<CategoryGroup> groups;
  for (const JsonlCategory& category : summary.categories) {
    const std::string name = joined && from_mt_bench(category.name) ? kMtBench : category.name;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.name == name; });
    if (group == groups.end()) group = groups.insert(group, {.name = name, .categories = {}});
    group->categories.push_back(category.name);
    group->lines += category.lines;
    group->with_reference += category.with_reference;
  }
  return groups;
}

std::vector<CategoryGroup> category_groups(const JsonlSummary& summary, const std::vector<std::string>& names,
                                           const std::string& dataset) {
  std::vector<CategoryGroup> groups = category_groups(summary);
  const auto find = [&](const std::string& name) {
    return std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.name == name; });
  };
  for (const JsonlCategory& one : summary.categories) {
    if (find(one.name) == groups.end()) groups.push_back({one.name, {one.name}, one.lines, one.with_reference});
  }
  std::vector<CategoryGroup> chosen;
  for (const std::string& name : names) {
    if (const auto found = find(name); found != groups.end()) {
      chosen.push_back(*found);
      continue;
    }
    std::vector<std::string> known;
    for (const CategoryGroup& group : groups) known.push_back(group.name);
    Problem problem = unknown_name("category", name, known);
    problem.where = "data set " + dataset;
    throw UserError(problem);
  }
  return chosen;
}

}  // namespace draftsmith::data
