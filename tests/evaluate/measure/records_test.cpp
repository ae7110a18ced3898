#include <gtest/gtest.h>

#include "evaluate/measure/measurement_store.h"
#include "tests/evaluate/measure/timed_line.h"

namespace draftsmith::evaluate {
namespace {

TEST(EvaluationRecords, OverheadOfABatchIsCountedOnceHoweverUnequalItsLines) {
  SettingRecords batch{timed(2, {0}, 2), timed(10, {2}, 10)};  // encode takes 1 each: 4 s in the phases
  add_overhead(batch, 4.5);
  EXPECT_DOUBLE_EQ(batch[0].repetitions[0].other, 0.25);
  EXPECT_DOUBLE_EQ(batch[1].repetitions[0].total(), 3.25);
  add_overhead(batch, 4.0);  // clocks differ: never less than the phases
  EXPECT_DOUBLE_EQ(batch[0].repetitions[0].other, 0.25);
}

TEST(EvaluationRecords, ComeBackFromJsonAsTheyWere) {
  LineRecord record = timed(3, {0.1, 0.2}, 2);
  record.stats.drafted = 5;
  record.stats.overlap_sum = 2.5;
  record.stats.overlap_count = 4;
  record.stats.accepted_histogram = {1, 0, 2};
  record.stats.layer_runs = 11;
  record.stats.exits_by_layer = {1, 0, 2};
  record.stats.early_predictions = 9;
  record.stats.early_matches = 7;
  record.stats.latency_units = 31;
  record.stats.compute_units = 64;
  record.prefill_runs = 1;
  record.turn = 4;
  record.timed_again = 1;
  LineRecord back = LineRecord::from_counts(nlohmann::json::parse(record.counts_json().dump()));
  EXPECT_EQ(back.counts_json(), record.counts_json());
  EXPECT_TRUE(back.repetitions.empty());
  back.set_times(nlohmann::json::parse(record.times_json().dump()));
  EXPECT_EQ(back.times_json(), record.times_json());
  EXPECT_EQ(back.turn, 4);
  EXPECT_EQ(back.timed_again, 1);
  EXPECT_EQ(back.ids, record.ids);
  EXPECT_EQ(back.stats.overlap_count, 4);
  EXPECT_EQ(back.stats.layer_runs, 11);
  EXPECT_EQ(back.stats.exits_by_layer, (std::vector<int64_t>{1, 0, 2}));
  EXPECT_DOUBLE_EQ(back.stats.average_exit_layer(), 7.0 / 3);
  EXPECT_DOUBLE_EQ(back.stats.match_rate(), 7.0 / 9);
  EXPECT_EQ(back.stats.latency_units, 31);
  EXPECT_EQ(back.stats.compute_units, 64);
  EXPECT_DOUBLE_EQ(back.repetitions.at(1).verify, 0.2);
}

}  // namespace
}  // namespace draftsmith::evaluate
