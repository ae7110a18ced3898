#include "evaluate/results/results.h"

#include <algorithm>

namespace draftsmith::evaluate {

const metrics::NamedScore* Quality::find(const std::string& score) const {
  const auto found = std::find_if(scores.begin(), scores.end(), [&](const auto& one) { return one.name == score; });
  return found == scores.end() ? nullptr : &*found;
}

const SettingResult* TaskResult::find(const std::string& setting) const {
  for (const SettingResult* row : rows()) {
    if (row->name == setting) return row;
  }
  return nullptr;
}

std::vector<const SettingResult*> TaskResult::rows() const {
  std::vector<const SettingResult*> rows{&baseline};
  for (const SettingResult& setting : settings) rows.push_back(&setting);
  return rows;
}

}  // namespace draftsmith::evaluate
