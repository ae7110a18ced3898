#include "evaluate/report/setting_names.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

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

// Settings of one method and the same models.
struct Alike {
  std::vector<const SettingResult*> settings = {};
  std::map<std::string, size_t> uses = {};  // settings with that piece in their name

  void add(const SettingResult& setting) {
    settings.push_back(&setting);
    const auto pieces = pieces_of(setting.name);
    for (const std::string& piece : std::set(pieces.begin(), pieces.end())) ++uses[piece];
  }

  // Returns the pieces that tell a setting from the others: the last one that is its own, or all that not all have.
  std::vector<std::string> differing(std::span<const std::string> pieces) const {
    std::vector<std::string> differing;
    for (const std::string& piece : pieces) {
      if (uses.at(piece) < settings.size()) differing.push_back(piece);
    }
    const auto own = std::find_if(differing.rbegin(), differing.rend(),
                                  [&](const std::string& piece) { return uses.at(piece) == 1; });
    return own == differing.rend() ? differing : std::vector{*own};
  }
};

std::string short_name(const SettingResult& setting, const Alike& alike) {
  const auto pieces = pieces_of(setting.name);
  const size_t head = head_of(setting, pieces);
  if (head == 0) return setting.name;
  std::vector<std::string> kept(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(head));
  const auto differing = alike.differing(std::span(pieces).subspan(head));
  kept.insert(kept.end(), differing.begin(), differing.end());
  return fmt::format("{}", fmt::join(kept, " · "));
}

}  // namespace

std::map<std::string, std::string> short_names(const TaskResult& task) {
  std::map<std::vector<std::string>, Alike> groups;
  for (const SettingResult* setting : task.rows()) {
    groups[{setting->method, setting->model(), setting->drafter_name()}].add(*setting);
  }
  std::map<std::string, std::string> names;
  std::map<std::string, int> uses;
  for (const auto& [models, alike] : groups) {
    for (const SettingResult* setting : alike.settings) {
      names[setting->name] = cut_to_width(short_name(*setting, alike), kLongest);
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
