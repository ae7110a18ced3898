#include "evaluate/comparison/json_changes.h"

#include <map>

#include <fmt/format.h>

#include "base/json.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Values by their paths, in the order of the first object.
class Leaves {
 public:
  void add(const ordered_json& json, const std::string& path) {
    if (json.is_structured() && !json.empty()) {
      size_t index = 0;
      for (const auto& [key, value] : json.items()) add(value, joined(path, name_of(json, key, value, index++)));
    } else if (values_.emplace(path, json).second) {
      order_.push_back(path);
    }
  }
  const std::vector<std::string>& order() const { return order_; }
  // Returns a value as text; "nothing" without one.
  std::string text(const std::string& path) const {
    const auto found = values_.find(path);
    if (found == values_.end()) return "nothing";
    return found->second.is_string() ? found->second.get<std::string>() : brief(found->second);
  }

 private:
  static std::string joined(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }
  static std::string name_of(const ordered_json& parent, const std::string& key, const ordered_json& value,
                             size_t index) {
    if (!parent.is_array()) return key;
    const bool named = value.is_object() && value.contains("name") && value.at("name").is_string();
    return named ? value.at("name").get<std::string>() : std::to_string(index);
  }

  std::map<std::string, ordered_json> values_;
  std::vector<std::string> order_;
};

Leaves leaves_of(const ordered_json& json, const std::set<std::string>& ignored) {
  Leaves leaves;
  if (!json.is_object()) return leaves;
  for (const auto& [key, value] : json.items()) {
    if (!ignored.contains(key)) leaves.add(value, key);
  }
  return leaves;
}

}  // namespace

std::vector<std::string> json_changes(const ordered_json& first, const ordered_json& second,
                                      const std::set<std::string>& ignored) {
  const Leaves a = leaves_of(first, ignored);
  const Leaves b = leaves_of(second, ignored);
  std::vector<std::string> paths = a.order();
  for (const std::string& path : b.order()) {
    if (a.text(path) == "nothing") paths.push_back(path);
  }
  std::vector<std::string> changes;
  for (const std::string& path : paths) {
    if (a.text(path) != b.text(path)) changes.push_back(fmt::format("{}: {} → {}", path, a.text(path), b.text(path)));
  }
  return changes;
}

}  // namespace draftsmith::evaluate
