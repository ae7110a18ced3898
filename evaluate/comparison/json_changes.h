// Differences of two JSON objects, such as environments and options.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

// Returns a line for each value that differs, "threads: 2 → 4", with the path of nested ones ("task.test.limit"):
// elements of lists that have a `name` go by it, others by their number. Leaves out the top-level keys in `ignored`.
std::vector<std::string> json_changes(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second,
                                      const std::set<std::string>& ignored);

}  // namespace draftsmith::evaluate
