// Energy counters: which of a powercap folder count, how they wrap around, and what a suite makes of them.
#include "evaluate/measure/energy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/measure/speed.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/evaluate/measure/timed_line.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A folder as Linux' powercap shows it.
class Powercap {
 public:
  void zone(const std::string& folder, const std::string& name, uint64_t energy) const {
    std::filesystem::create_directories(root_ / folder);
    write_text(root_ / folder / "name", name + "\n");
    write_text(root_ / folder / "max_energy_range_uj", "1000000\n");
    set(folder, std::to_string(energy));
  }
  void set(const std::string& folder, const std::string& energy) const {
    write_text(root_ / folder / "energy_uj", energy + "\n");
  }
  void make_unreadable(const std::string& folder) const { std::filesystem::remove(root_ / folder / "energy_uj"); }
  const std::filesystem::path& path() const { return root_.path(); }
  EnergyMeter meter() const { return EnergyMeter(package_counters(path())); }

 private:
  TemporaryDirectory root_;
};

TEST(Energy, PackagesAreSummedAndTheirPartsAreNotCountedTwice) {
  const Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", 100);
  powercap.zone("intel-rapl:1", "package-1", 200);
  powercap.zone("intel-rapl:0:0", "core", 50);
  powercap.zone("intel-rapl:2", "psys", 900);
  powercap.zone("intel-rapl-mmio:0", "package-0", 100);
  EnergyMeter meter = powercap.meter();
  EXPECT_EQ(meter.names(), "package-0, package-1");
  for (const char* zone : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"}) powercap.set(zone, "99999");
  powercap.set("intel-rapl:0", "600100");
  powercap.set("intel-rapl:1", "300200");
  EXPECT_DOUBLE_EQ(meter.take().value(), 0.9);
  EXPECT_DOUBLE_EQ(meter.take().value(), 0);
}

TEST(Energy, ACounterBeginsAgainAfterItsRange) {
  const Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", 900'000);
  EnergyMeter meter = powercap.meter();
  powercap.set("intel-rapl:0", "150000");
  EXPECT_DOUBLE_EQ(meter.take().value(), 0.25);
  write_text(powercap.path() / "intel-rapl:0/max_energy_range_uj", "unknown\n");
  EnergyMeter without_range = powercap.meter();
  powercap.set("intel-rapl:0", "10");
  EXPECT_FALSE(without_range.take().has_value());
  powercap.set("intel-rapl:0", "1000010");
  EXPECT_DOUBLE_EQ(without_range.take().value(), 1);
}

TEST(Energy, WithoutAReadableCounterThereIsNone) {
  EXPECT_TRUE(package_counters("/no/such/folder").empty());
  EXPECT_FALSE(EnergyMeter({}).take().has_value());
  const Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", 1);
  powercap.zone("intel-rapl:1", "package-1", 1);
  powercap.make_unreadable("intel-rapl:1");
  EXPECT_TRUE(package_counters(powercap.path()).empty()) << "one package of two would be too little";
  powercap.set("intel-rapl:1", "no number");
  EXPECT_TRUE(package_counters(powercap.path()).empty());
  EXPECT_FALSE(gpu_counter("0000:01:00.0", "/no/such/library.so").has_value());
  EXPECT_FALSE(gpu_counter("").has_value());
  EXPECT_TRUE(device_counters(0, powercap.path()).empty()) << "packages alone say little of a GPU's work";
}

TEST(Energy, ACounterThatFailsMeanwhileGivesNothing) {
  const Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", 5);
  EnergyMeter meter = powercap.meter();
  powercap.make_unreadable("intel-rapl:0");
  EXPECT_FALSE(meter.take().has_value());
  powercap.set("intel-rapl:0", "10");
  EXPECT_FALSE(meter.take().has_value()) << "where it stood before is unknown";
  powercap.set("intel-rapl:0", "500010");
  EXPECT_DOUBLE_EQ(meter.take().value(), 0.5);
}

LineRecord with_joules(int64_t tokens, std::vector<double> joules) {
  LineRecord record = timed(tokens, std::vector<double>(joules.size(), 1), tokens);
  record.joules = std::move(joules);
  return record;
}

TEST(Energy, IsTheMeanOfTheRepetitionsOverTheTokens) {
  const SettingRecords baseline{with_joules(10, {4, 0, 8}), with_joules(10, {4, 4, 4})};
  const SettingRecords run{with_joules(5, {2, 2, 2}), with_joules(5, {0, 0, 3})};
  const Speed speed = measure_speed(run, baseline, {.resamples = 50});
  EXPECT_DOUBLE_EQ(speed.joules_per_token.value(), 3.0 / 10);
  EXPECT_DOUBLE_EQ(speed.joules_ratio->value, 0.3 / 0.4);
  EXPECT_LE(speed.joules_ratio->interval.low, 0.75);
  EXPECT_GE(speed.joules_ratio->interval.high, 0.75);
  const SettingRecords unknown{with_joules(5, {2, 2, 2}), timed(5, {1, 1, 1}, 5)};
  const Speed without = measure_speed(unknown, baseline, {.resamples = 10});
  EXPECT_FALSE(without.joules_per_token.has_value()) << "one line's energy is unknown";
  EXPECT_FALSE(without.joules_ratio.has_value());
}

TEST(Energy, GoesWithTheTimesIntoFiles) {
  const LineRecord line = with_joules(5, {2, 0.5});
  LineRecord back;
  back.set_times(line.times_json());
  EXPECT_EQ(back.joules, line.joules);
  LineRecord none;
  none.set_times(timed(5, {1}, 5).times_json());
  EXPECT_TRUE(none.joules.empty());
}

// A suite on a machine whose package counts what the fake engine says that it uses.
class EnergySuite : public testing::Test {
 protected:
  void SetUp() override {
    suite_.options.run = {FakeSuite::run("assisted")};
    engine_.death = [this](const Setting& setting, const DecodeBatch& batch) {
      used_ = (used_ + (setting.decode.drafts() ? 3000 : 6000) * batch.prompts.size()) % 1'000'000;
      powercap_.set("intel-rapl:0", std::to_string(used_));
    };
  }
  Results evaluate() {
    const SuiteContext context{.quiet = true, .powercap = powercap_.path()};
    return run_evaluation(suite_.options, suite_.directory / "out", engine_, context).results;
  }

  const Powercap powercap_;
  uint64_t used_ = 0;
  FakeSuite suite_;
  FakeEngine engine_;
};

TEST_F(EnergySuite, ReportsJoulesOfATokenBesideTheBaseline) {
  powercap_.zone("intel-rapl:0", "package-0", 0);
  const Results results = evaluate();
  const SettingResult& assisted = *results.tasks.front().find("assisted.small");
  EXPECT_NEAR(results.tasks.front().baseline.speed.joules_per_token.value(), 24 * 0.006 / 228, 1e-9);
  EXPECT_NEAR(assisted.speed.joules_per_token.value(), 24 * 0.003 / 228, 1e-9);
  EXPECT_NEAR(assisted.speed.joules_ratio->value, 0.5, 1e-9);
  EXPECT_EQ(results.environment_text("energy"), "package-0");
  const std::string table = latency_tables(results);
  EXPECT_THAT(table, AllOf(HasSubstr("J/token"), HasSubstr("by the counters of package-0"), HasSubstr("0.50 ±")));
  EXPECT_LE(widest_line(table), 100u);
  EXPECT_THAT(results_csv(results), AllOf(HasSubstr(",joules_per_token,joules_ratio"), HasSubstr(",0.5")));
  EXPECT_THAT(read_file(suite_.directory / "out/lines.jsonl"), HasSubstr("\"joules\":[0.003,"));
  EXPECT_EQ(to_json(load_results(suite_.directory / "out/results.json")), to_json(results));
}

TEST_F(EnergySuite, IsSilentWhereNothingCanBeRead) {
  std::filesystem::create_directories(powercap_.path() / "intel-rapl:0");  // without a name
  const Results results = evaluate();
  EXPECT_FALSE(results.tasks.front().baseline.speed.joules_per_token.has_value());
  EXPECT_THAT(latency_tables(results), Not(HasSubstr("J/token")));
  EXPECT_THAT(read_file(suite_.directory / "out/results.json"), Not(HasSubstr("joules")));
  EXPECT_FALSE(results.environment_text("energy").has_value());
}

}  // namespace
}  // namespace draftsmith::evaluate
