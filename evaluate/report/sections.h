// List of the sections of a suite's report. A new section, of a plot or a table, is a file with a function, a
// declaration here and a line in sections().
#pragma once

#include <vector>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

// Returns all sections in their order.
const std::vector<Section>& sections();

Section quality_speedup_section();       // all settings as points
Section settings_section();              // quality and speed of each setting
Section categories_section();            // speedups by category of a data set
Section predicted_speed_section();       // predicted against measured
Section windows_section();               // best draft windows (SpecGame)
Section prediction_quality_section();    // how well drafters predict texts
Section quality_latency_section();       // BiLD's figure 7
Section latency_section();               // throughput, percentiles of times
Section work_section();                  // operations and bytes (BiLD's figure 8)
Section phases_section();                // where time goes
Section acceptance_positions_section();  // by place in the draft
Section accepted_lengths_section();      // histograms
Section inside_section();                // layers that ran, where tokens left
Section match_rates_section();           // PPD's tables 2 and 5 to 8
Section engagement_section();            // BiLD's figure 2
Section examples_section();              // outputs by their tokens' origins (BiLD's figure 9)
Section training_section();              // losses of the models' training
Section checks_section();  // checks of the measurement, for CSV only: settings_section() has them as notes

// Returns the CSV columns of settings_section().
std::vector<CsvColumn> setting_columns();

}  // namespace draftsmith::evaluate
