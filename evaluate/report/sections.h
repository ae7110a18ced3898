// List of the sections of a suite's report. A new section is a file with a function, a declaration here and a line in
// sections().
#pragma once

#include <vector>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

// Returns all sections in their order.
const std::vector<Section>& sections();

Section settings_section();            // quality and speed of each setting
Section windows_section();             // best draft windows (SpecGame)
Section prediction_quality_section();  // how well drafters predict texts
Section phases_section();              // where time goes
Section inside_section();              // layers that ran, where tokens left
Section quality_latency_section();     // BiLD's figure 7
Section quality_speedup_section();     // all settings as points
Section accepted_lengths_section();    // histograms
Section match_rates_section();         // PPD's tables 2 and 5 to 8
Section checks_section();              // checks of the measurement, for CSV only: settings_section() has them as notes

// Returns the CSV columns of settings_section().
std::vector<CsvColumn> setting_columns();

}  // namespace draftsmith::evaluate
