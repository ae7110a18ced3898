// Suites with several batch sizes, and with beam search beside the methods.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const SettingResult& row(const Results& results, const std::string& name) {
  const SettingResult* found = results.tasks.front().find(name);
  if (found == nullptr) throw std::runtime_error("no run " + name);
  return *found;
}

// 24 lines of 0.1 s by greedy decoding and 0.05 s by drafting, whatever the batch.
void add_batches(FakeSuite& suite) {
  SettingGrid assisted = FakeSuite::run("assisted");
  assisted.lists[&DecodeOptions::batch_size] = {1, 3, 16};
  SettingGrid beam = FakeSuite::run("beam");
  beam.lists[&DecodeOptions::num_beams] = {4, 2};
  beam.lists[&DecodeOptions::batch_size] = {1, 16};
  suite.options.run = {assisted, beam};
}

double beam_seconds(const Setting& setting, int64_t) {
  if (setting.decode.searches_beams()) return 0.05 * static_cast<double>(setting.decode.num_beams.value());
  return setting.decode.drafts() ? 0.05 : 0.1;
}

TEST(Batches, EverySettingDecodesAllLinesInBatchesOfItsSize) {
  FakeSuite suite;
  add_batches(suite);
  FakeEngine engine;
  engine.detailed = true;
  suite.evaluate(engine);
  for (const auto& [label, size] : std::map<std::string, int64_t>{
           {"greedy", 1}, {"assisted.small.batch3", 3}, {"greedy.batch3", 3}, {"assisted.small.batch16", 16}}) {
    std::map<int64_t, int64_t> timed;  // by first line
    for (const FakeEngine::Call& call : engine.calls) {
      if (call.label != label) continue;
      EXPECT_EQ(call.first_line % size, 0);
      EXPECT_EQ(call.lines, std::min<int64_t>(size, 24 - call.first_line));
      if (!call.count && call.max_new_tokens == suite.options.max_new_tokens) ++timed[call.first_line];
    }
    EXPECT_EQ(std::ssize(timed), (24 + size - 1) / size) << label;
  }
}

TEST(Batches, BaselinesHaveTheSameSizeAndSentencesWaitForTheirBatch) {
  FakeEngine engine;
  engine.detailed = true;
  FakeSuite suite;
  add_batches(suite);
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(row(results, "assisted.small").baseline, "greedy");
  const SettingResult& sixteen = row(results, "assisted.small.batch16");
  EXPECT_EQ(sixteen.baseline, "greedy.batch16");
  EXPECT_NEAR(sixteen.speed.speedup.value, 2, 1e-9);
  EXPECT_NEAR(sixteen.speed.sentences_per_second, 20, 1e-9);
  EXPECT_NEAR(sixteen.speed.latency.sentence_ms.p50, 800, 1e-6);
  EXPECT_NEAR(row(results, "assisted.small").speed.latency.sentence_ms.p99, 50, 1e-6);
  EXPECT_FALSE(sixteen.speed.speedup_decode_bound.has_value());
  const nlohmann::ordered_json json = to_json(results).at("tasks").at(0).at("baseline").at("speed");
  EXPECT_NEAR(json.at("latency").at("sentence_ms").at("p95").get<double>(), 100, 1e-6);
  EXPECT_NEAR(json.at("sentences_per_second").get<double>(), 10, 1e-9);
}

TEST(Batches, TablesShowThroughputAndLatencyOnRequest) {
  FakeEngine engine;
  engine.detailed = true;
  FakeSuite suite;
  add_batches(suite);
  const Results results = suite.evaluate(engine).results;
  const std::string console = results_table(results);
  EXPECT_EQ(console.find("sent/s"), std::string::npos);
  const std::string asked = latency_tables(results);
  EXPECT_THAT(asked, HasSubstr("sent/s"));
  EXPECT_THAT(asked, HasSubstr("800"));
  for (const std::string& text : {report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, HasSubstr("Throughput and latency"));
  }
  EXPECT_THAT(results_csv(results), HasSubstr("sentence_ms_p50,sentence_ms_p95,sentence_ms_p99,token_ms_p50"));
}

TEST(Batches, SpeedupsBesideBeamSearchAreInEveryReport) {
  FakeEngine engine;
  engine.detailed = true;
  engine.seconds = beam_seconds;
  FakeSuite suite;
  add_batches(suite);
  const Results results = suite.evaluate(engine).results;
  const auto& versus = row(results, "assisted.small.batch16").speed.versus_beams;
  ASSERT_EQ(versus.size(), 2);
  EXPECT_EQ(versus[0].beams, 4);
  EXPECT_EQ(versus[0].setting, "beam.beams4.batch16");
  EXPECT_NEAR(versus[0].speedup.value, 4, 1e-9);
  EXPECT_NEAR(versus[1].speedup.value, 2, 1e-9);
  EXPECT_TRUE(row(results, "assisted.small.batch3").speed.versus_beams.empty()) << "no search has such batches";
  EXPECT_NEAR(row(results, "beam.beams4").speed.versus_beams.front().speedup.value, 1, 1e-9);
  for (const std::string& text : {results_table(results), report_markdown(results), report_html(results)}) {
    EXPECT_THAT(text, HasSubstr("vs beam 4"));
    EXPECT_THAT(text, HasSubstr("vs beam 2"));
  }
  EXPECT_THAT(results_csv(results), HasSubstr("beam_run,speedup_vs_beam,speedup_vs_beam_low,speedup_vs_beam_high"));
  EXPECT_EQ(to_json(results_from_json(to_json(results), "here")), to_json(results));
}

TEST(Batches, SuitesWithoutBeamSearchHaveNoSuchColumn) {
  FakeSuite suite;
  suite.options.run = {FakeSuite::run("assisted")};
  FakeEngine engine;
  engine.detailed = true;
  const Results results = suite.evaluate(engine).results;
  EXPECT_EQ(results_table(results).find("vs beam"), std::string::npos);
  EXPECT_TRUE(results.tasks.front().baseline.speed.versus_beams.empty());
}

}  // namespace
}  // namespace draftsmith::evaluate
