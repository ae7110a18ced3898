#include "evaluate/report/setting_details.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/key_words.h"
#include "evaluate/report/section.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

constexpr std::array kParameters{KeyWords{"model", "decoded by"},
                                 KeyWords{"window", "draft window (G)"},
                                 KeyWords{"temperature", "temperature (T)"},
                                 KeyWords{"fallback", "fallback threshold (FB)"},
                                 KeyWords{"rollback", "rollback threshold (RB)"},
                                 KeyWords{"max_draft", "longest draft"},
                                 KeyWords{"max_entropy", "largest entropy (H)"},
                                 KeyWords{"threshold", "router's threshold (tau)"},
                                 KeyWords{"num_samples", "samples"},
                                 KeyWords{"batch_size", "lines decoded together"},
                                 KeyWords{"num_beams", "beams"},
                                 KeyWords{"length_penalty", "length penalty"}};

std::string value_words(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number() ? fmt::format("{:g}", value.get<double>()) : value.dump();
}

// Pairs of names and values; values that are not known are left out.
class Details {
 public:
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) pairs_.push_back({name, value});
  }
  void add(const std::string& name, double value, int digits, const char* unit = "") {
    if (std::isfinite(value)) add(name, fixed(value, digits) + unit);
  }
  const ordered_json& json() const { return pairs_; }

 private:
  ordered_json pairs_ = ordered_json::array();
};

ordered_json details_of(const SettingResult& setting, const ScoreStyle& score) {
  Details details;
  details.add("method", setting.method);
  for (const auto& [key, value] : setting.params.items()) details.add(words_of(kParameters, key), value_words(value));
  if (const auto* quality = setting.quality.find(score.name)) {
    details.add(score_words(score.name), quality->value, score.digits);
  }
  if (setting.quality.difference) details.add("difference", setting.quality.difference->value, score.digits);
  details.add("speedup", setting.speed.speedup.value, 2, " ×");
  details.add("without encoder and prompt", setting.speed.speedup_decode.value, 2, " ×");
  for (const BeamSpeedup& versus : setting.speed.versus_beams) {
    details.add(fmt::format("beside beam search, {} beams", versus.beams), versus.speedup.value, 2, " ×");
  }
  if (setting.predicted) details.add("predicted by theory", setting.predicted->speedup, 2, " ×");
  details.add("tokens a second", setting.speed.tokens_per_second, 0);
  details.add("tokens a target run", setting.acceptance.tokens_per_target_run, 2);
  details.add("acceptance rate (alpha)", setting.acceptance.alpha, 3);
  return details.json();
}

}  // namespace

ordered_json setting_details(const TaskResult& task) {
  const ScoreStyle score = score_style(task);
  ordered_json details = ordered_json::object();
  for (const SettingResult* setting : task.rows()) details[setting->name] = details_of(*setting, score);
  return details;
}

}  // namespace draftsmith::evaluate
