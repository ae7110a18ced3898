#include "evaluate/measure/failed_settings.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

// Returns why a setting has no results: its own message, or that of a setting it is compared with; nothing if it has.
std::optional<std::string> reason(const Setting& setting, const std::map<std::string, std::string>& failed) {
  if (const auto own = failed.find(setting.label); own != failed.end()) return own->second;
  std::vector<std::string> others{baseline_of(setting).label};
  if (compares_with_own_greedy(setting)) others.push_back(greedy_of(setting).label);
  for (const std::string& other : others) {
    const auto found = failed.find(other);
    if (found != failed.end()) return fmt::format("{}, which it is compared with, failed: {}", other, found->second);
  }
  return std::nullopt;
}

}  // namespace

void remove_failed(const std::map<std::string, std::string>& failed, const std::string& during, MeasuredTask& task) {
  if (failed.empty()) return;
  std::erase_if(task.rows, [&](const SettingRow& row) {
    const auto message = reason(row.settings, failed);
    if (!message) return false;
    task.failures.push_back({row.label, during, *message});
    task.records.erase(row.settings.label);
    return true;
  });
}

}  // namespace draftsmith::evaluate
