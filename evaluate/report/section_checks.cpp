// Checks of each measurement, as columns of the CSV file. section_settings.cpp shows them as notes.
#include <nlohmann/json.hpp>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {

using nlohmann::ordered_json;

Section checks_section() {
  return {.title = "",
          .parts = nullptr,
          .csv = {{"failed_lines",
                   [](const TaskView&, const SettingResult& row) {
                     return row.failed_lines ? ordered_json(row.failed_lines->lines) : ordered_json();
                   }},
                  {"differing_lines",
                   [](const TaskView&, const SettingResult& row) {
                     return row.exactness ? ordered_json(row.exactness->differing_lines) : ordered_json();
                   }},
                  {"lossless_check",
                   [](const TaskView&, const SettingResult& row) {
                     if (!row.lossless_check) return ordered_json();
                     return ordered_json(*row.lossless_check ? "passed" : "failed");
                   }},
                  {"first_token_p",
                   [](const TaskView&, const SettingResult& row) {
                     return row.first_tokens ? csv_number(row.first_tokens->p_value) : ordered_json();
                   }},
                  {"measurement_error", [](const TaskView&, const SettingResult& row) {
                     return row.measurement_error ? ordered_json(*row.measurement_error) : ordered_json();
                   }}}};
}

}  // namespace draftsmith::evaluate
