// Categories of a data set as rows of its table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/jsonl_summary.h"

namespace draftsmith::data {

// Categories that a table gives as one row. Spec-Bench's eight from MT-Bench are one, "mt_bench", as in its own tables;
// every other category is a row.
struct CategoryGroup {
  std::string name;
  std::vector<std::string> categories;
  int64_t lines = 0;
  int64_t with_reference = 0;  // lines with the field `reference`
};

// Returns all groups of a file's categories, in its order.
std::vector<CategoryGroup> category_groups(const JsonlSummary& summary);

// Returns the groups, or single categories, of these names. Errors: UserError for an unknown name of data set
// `dataset`.
std::vector<CategoryGroup> category_groups(const JsonlSummary& summary, const std::vector<std::string>& names,
                                           const std::string& dataset);

}  // namespace draftsmith::data
