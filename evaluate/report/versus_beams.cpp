#include "evaluate/report/versus_beams.h"

#include <algorithm>

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Returns the column of a value of the first comparison.
template <ordered_json (*kValue)(const BeamSpeedup& versus)>
CsvColumn first_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            return row.speed.versus_beams.empty() ? ordered_json() : kValue(row.speed.versus_beams.front());
          }};
}

ordered_json value_of(const BeamSpeedup& versus) {
  return csv_number(versus.speedup.value);
}
ordered_json low_of(const BeamSpeedup& versus) {
  return csv_number(versus.speedup.interval.low);
}
ordered_json high_of(const BeamSpeedup& versus) {
  return csv_number(versus.speedup.interval.high);
}
ordered_json setting_of(const BeamSpeedup& versus) {
  return versus.setting;
}

}  // namespace

std::vector<int64_t> beams_of(const TaskResult& task) {
  std::vector<int64_t> beams;
  for (const SettingResult* setting : task.rows()) {
    for (const BeamSpeedup& versus : setting->speed.versus_beams) {
      if (std::ranges::find(beams, versus.beams) == beams.end()) beams.push_back(versus.beams);
    }
  }
  return beams;
}

const BeamSpeedup* versus_beams(const SettingResult& setting, int64_t beams) {
  const auto found = std::ranges::find(setting.speed.versus_beams, beams, &BeamSpeedup::beams);
  return found == setting.speed.versus_beams.end() ? nullptr : &*found;
}

std::vector<CsvColumn> versus_beam_columns() {
  return {first_column<setting_of>("beam_run"), first_column<value_of>("speedup_vs_beam"),
          first_column<low_of>("speedup_vs_beam_low"), first_column<high_of>("speedup_vs_beam_high")};
}

}  // namespace draftsmith::evaluate
