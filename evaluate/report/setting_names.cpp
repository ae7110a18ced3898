#include "evaluate/report/setting_names.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kLongest = 40;  // characters

bool is_digit(const std::string& text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

// Returns the pieces of a name between its dots, but for decimal points.
std::vector<std::string> pieces_of(const std::string& name) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const bool decimal = i > 0 && is_digit(name, i - 1) && is_digit(name, i + 1);
    if (name[i] == '.' && !decimal) {
      pieces.emplace_back();
    } else {
      pieces.back() += name[i];
    }
  }
  return pieces;
}

// Returns how many of the first pieces name the method, the model that decodes and the drafter.
size_t head_of(const SettingResult& setting, const std::vector<std::string>& pieces) {
  const std::set<std::string> names{setting.method, setting.model(), setting.drafter_name()};
  size_t head = 0;
  while (head < pieces.size() && names.contains(pieces[head])) ++head;
  return head;
}

// Returns the short name of a setting beside others of its method and models.
std::string short_name(const SettingResult& setting, const std::vector<const SettingResult*>& alike) {
  const auto pieces = pieces_of(setting.name);
  const size_t head = head_of(setting, pieces);
  if (head == 0) return setting.name;
  std::vector<std::string> kept(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(head));
  for (size_t i = head; i < pieces.size(); ++i) {
    const bool common = std::ranges::all_of(
        alike, [&](const SettingResult* other) { return std::ranges::count(pieces_of(other->name), pieces[i]) > 0; });
    if (!common) kept.push_back(pieces[i]);
  }
  return fmt::format("{}", fmt::join(kept, " · "));
}

}  // namespace

std::map<std::string, std::string> short_names(const TaskResult& task) {
  std::map<std::vector<std::string>, std::vector<const SettingResult*>> alike;
  for (const SettingResult* setting : task.rows()) {
    alike[{setting->method, setting->model(), setting->drafter_name()}].push_back(setting);
  }
  std::map<std::string, std::string> names;
  std::map<std::string, int> uses;
  for (const auto& [models, settings] : alike) {
    for (const SettingResult* setting : settings) {
      names[setting->name] = cut_to_width(short_name(*setting, settings), kLongest);
      ++uses[names[setting->name]];
    }
  }
  for (auto& [name, shown] : names) {
    if (uses[shown] > 1) shown = name;
  }
  return names;
}

std::vector<const SettingResult*> fastest_settings(const TaskResult& task, size_t limit,
                                                   const std::function<bool(const SettingResult&)>& shown) {
  std::vector<const SettingResult*> settings = task.rows();
  std::erase_if(settings, [&](const SettingResult* setting) { return !shown(*setting); });
  if (settings.size() <= limit) return settings;
  std::vector<const SettingResult*> sorted = settings;
  const auto speed = [](const SettingResult* setting) {
    return std::isfinite(setting->speed.speedup.value) ? setting->speed.speedup.value : 0;
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](auto* a, auto* b) { return speed(a) > speed(b); });
  const std::set<const SettingResult*> kept(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(limit));
  std::erase_if(settings, [&](const SettingResult* setting) { return !kept.contains(setting); });
  return settings;
}

std::string left_out_words(const TaskResult& task, size_t limit,
                           const std::function<bool(const SettingResult&)>& shown) {
  const auto rows = task.rows();
  const auto all = std::ranges::count_if(rows, [&](const SettingResult* setting) { return shown(*setting); });
  return all <= static_cast<std::ptrdiff_t>(limit) ? "" : fmt::format(" Shown: the {} fastest of {}.", limit, all);
}

}  // namespace draftsmith::evaluate
