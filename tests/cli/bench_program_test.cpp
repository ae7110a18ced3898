// `draftsmith bench` as a user runs it: tables that fit, files that `plan` reads, errors before anything is measured.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/bench_report.h"
#include "model/files/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

namespace draftsmith {
namespace {

using nlohmann::json;
using test::ProgramResult;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BenchProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    model::TransformerConfig t5 = model::tiny_t5();
    t5.output_scale = 1 / std::sqrt(static_cast<double>(t5.width));  // the only one that files can hold
    model::save_model(*folder_ / "t5", model::TransformerModel(t5, 3));
    model::save_model(*folder_ / "llama", model::TransformerModel(model::tiny_llama(), 3));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult bench(const std::string& model, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "--model", path(model), "--device", "cpu"});
    return run_program(flags);
  }

  // The error of a command line that must not measure anything.
  static std::string bench_error(const std::string& model, const std::vector<std::string>& flags) {
    const ProgramResult result = bench(model, flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  }

  static json json_of(const std::string& file) { return json::parse(read_file(path(file))); }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> BenchProgram::folder_;

TEST_F(BenchProgram, PrintsTablesThatFitAndWritesTheirNumbers) {
  const ProgramResult result = bench("t5", {"--rounds", "3", "--tokens", "4,2,4", "--quiet", "--json", path("all.json"),
                                            "--threads", "1", "--batch", "2", "--length", "6", "--source-length", "5"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_LE(widest_line(result.out), 100u) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("t5, 3 decoder layers of width 20, vocabulary 23; fp32, batch 2"),
                                HasSubstr("1 thread; medians of 3 rounds"), HasSubstr("encoder, 5 tokens")));
  const json all = json_of("all.json");
  EXPECT_EQ(all["threads"], 1);
  EXPECT_EQ(all["batch"], 2);
  EXPECT_EQ(all["prompt"].size(), 2u);
  EXPECT_GT(all["memory"]["gb_per_second"]["median"], 0);
  ASSERT_EQ(all["steps"].size(), 3u);  // 1, 2, 4
  EXPECT_EQ(all["steps"][0]["relative"], 1);
  EXPECT_EQ(all["steps"][2]["tokens"], 4);
  for (const json& step : all["steps"]) {
    EXPECT_LE(step["ms"]["p10"], step["ms"]["p90"]);
    EXPECT_GT(step["share_of_roofline"], 0);
  }
}

// A count of 0 would be a lie today: it says that a step was not counted.
TEST_F(BenchProgram, CountsAllocationsOrSaysThatItDoesNot) {
  const ProgramResult result =
      bench("llama", {"--rounds", "1", "--tokens", "1", "--length", "6", "--quiet", "--json", path("one.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json step = json_of("one.json")["steps"][0];
  if (step["allocations"].is_null()) {
    EXPECT_THAT(result.out, AllOf(HasSubstr("Allocations are not counted"), Not(HasSubstr("| allocations"))));
  } else {
    EXPECT_EQ(step["allocations_per_token"], step["allocations"]);
    EXPECT_THAT(result.out, HasSubstr("allocations: calls of malloc and new"));
  }
}

TEST_F(BenchProgram, WritesCurvesThatPlanReads) {
  for (const char* model : {"t5", "llama"}) {
    const ProgramResult result = bench(model, {"--rounds", "2", "--tokens", "1,3", "--quiet", "--length", "6",
                                               "--dtype", "bf16", "--curve", path(std::string(model) + ".json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  const json curve = json_of("t5.json");
  EXPECT_EQ(curve["dtype"], "bf16");
  EXPECT_EQ(curve["length"], 6);
  EXPECT_EQ(json_of("llama.json")["source_length"], 0);
  ASSERT_EQ(curve["curve"].size(), 2u);
  const double one = curve["curve"][0]["seconds"];
  const double three = curve["curve"][1]["seconds"];
  EXPECT_DOUBLE_EQ(curve["curve"][1]["relative"], three / one);
  const double draft = json_of("llama.json")["curve"][0]["seconds"];
  EXPECT_THAT(run_program({"inspect", path("t5.json")}).out, HasSubstr("step curve of "));
  EXPECT_THAT(run_program({"verify", path("t5.json")}).out, HasSubstr("well formed"));
  const std::vector<std::string> files = {"--curve", path("t5.json"), "--drafter-curve", path("llama.json")};

  std::vector<std::string> command = {"plan", "speculative", "--alpha", "0.8"};
  command.insert(command.end(), files.begin(), files.end());
  const ProgramResult text = run_program(command);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("Target: "), HasSubstr("Drafter: "), HasSubstr("alpha 0.8")));
  EXPECT_LE(widest_line(text.out), 100u);
  command.emplace_back("--json");
  const json plan = json::parse(run_program(command).out)[0];
  EXPECT_DOUBLE_EQ(plan["cost_ratio"], draft / one);
  const double tokens = 1 + 0.8 + 0.64;
  EXPECT_NEAR(plan["windows"][2]["speedup"], tokens / (2 * draft / one + three / one), 1e-9);

  command = {"plan", "specgame", "--acceptance", "0.8", "--json"};
  command.insert(command.end(), files.begin(), files.end());
  const json rows = json::parse(run_program(command).out);
  EXPECT_NEAR(rows[0]["e_pt_ms"], 1e3 * one, 1e-9);
  EXPECT_NEAR(rows[2]["long_run_ms"], 1e3 * (2 * draft + three) / tokens, 1e-9);
}

TEST_F(BenchProgram, RefusesBadFlagsBeforeMeasuring) {
  EXPECT_THAT(bench_error("none", {}), HasSubstr("none"));
  EXPECT_THAT(bench_error("t5", {"--dtype", "int4"}), HasSubstr("fp32, bf16, fp16, fp64 or int8"));
  EXPECT_THAT(bench_error("t5", {"--tokens", "1,0"}), HasSubstr("--tokens"));
  EXPECT_THAT(bench_error("t5", {"--tokens", "1,two"}), HasSubstr("--tokens"));
  EXPECT_THAT(bench_error("t5", {"--rounds", "0"}), HasSubstr("--rounds"));
  EXPECT_THAT(bench_error("t5", {"--batch", "-1"}), HasSubstr("--batch"));
  EXPECT_THAT(bench_error("t5", {"--curve", path("no/such/curve.json")}), HasSubstr("no/such"));
  EXPECT_THAT(bench_error("t5", {"--json", path("t5")}), HasSubstr("is a directory"));
  EXPECT_THAT(bench_error("t5", {"--json", path("x"), "--curve", path("x")}), HasSubstr("name one file"));
  EXPECT_THAT(bench_error("t5", {"--model-dir", "x"}), HasSubstr("unknown flag '--model-dir'"));
}

TEST_F(BenchProgram, RefusesStepsBeyondTheModelsPositions) {
  EXPECT_THAT(bench_error("llama", {"--length", "60", "--tokens", "5"}),
              AllOf(HasSubstr("at most 64 together"), HasSubstr("60 + 5"), HasSubstr("at most 59")));
  EXPECT_THAT(bench_error("llama", {"--length", "6", "--source-length", "64"}), HasSubstr("below 64"));
}

TEST_F(BenchProgram, PlanExplainsWhatIsWrongWithCurves) {
  const auto plan_error = [](const std::vector<std::string>& flags, const std::string& command = "speculative") {
    std::vector<std::string> arguments = {"plan", command};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  write_text(path("bad.json"), R"({"format": "draftsmith step curve", "version": 1, "curve": [{"tokens": 2}]})");
  EXPECT_THAT(plan_error({"--curve", path("bad.json")}),
              AllOf(HasSubstr("bad.json: curve[0]"), HasSubstr("'seconds' is missing"), HasSubstr("'threads'")));
  EXPECT_THAT(plan_error({"--curve", path("bad.json"), "--target-curve", "1,2"}), HasSubstr("--target-curve"));
  EXPECT_THAT(plan_error({"--drafter-curve", path("bad.json")}), HasSubstr("--curve"));
  EXPECT_THAT(plan_error({"--draft-ms", "1"}, "specgame"), HasSubstr("--target-ms or --curve"));
  EXPECT_THAT(plan_error({"--target-ms", "1"}, "specgame"), HasSubstr("--draft-ms or --drafter-curve"));
}

cli::BenchReport made_up_report() {
  cli::BenchReport report;
  report.curve.model = std::string(150, 'm');
  report.curve.processor = "AMD EPYC 9965 192-Core Processor";
  report.curve.dtype = "int8";
  report.curve.threads = 384;
  report.architecture = "t5, 24 decoder layers of width 4096, vocabulary 250112";
  report.device = "cpu";
  report.speed.memory = {"reading 24.6 GB in huge pages", {123.4e9, 100e9, 150e9}};
  report.speed.products = {"product of two matrices of 2048 x 2048 in fp32", {12345e9, 1e12, 15e12}};
  for (const int64_t tokens : {int64_t{1}, int64_t{1024}}) {
    const infer::Work work{.weight_bytes = 11e9, .cache_bytes = 1e9, .operations = 22e9};
    report.speed.steps.push_back({tokens, work, {10.0 + 0.1 * static_cast<double>(tokens), 9, 12345.6}, {{99999, 1}}});
  }
  report.speed.prompt.push_back({infer::PromptPart::kCrossAttention, {.operations = 1e12}, {1, 0.5, 12345}});
  return report;
}

TEST(BenchReport, TablesOfLargeMachinesFitToo) {
  cli::BenchReport report = made_up_report();
  const std::string text = cli::bench_text(report);
  EXPECT_LE(widest_line(text.substr(text.find('\n') + 1)), 100u) << text;  // the directory may be long
  EXPECT_THAT(text, AllOf(HasSubstr("99999"), HasSubstr("allocations: calls")));
}

TEST(BenchReport, SaysWhatWasNotMeasured) {
  cli::BenchReport report = made_up_report();
  for (infer::StepSpeed& step : report.speed.steps) step.allocations.reset();
  report.device = "cuda:0";
  const std::string text = cli::bench_text(report);
  EXPECT_THAT(text, AllOf(HasSubstr("Allocations are not counted"), HasSubstr("launches and waits are not measured")));
  EXPECT_THAT(text, Not(HasSubstr("of roofline  allocations")));
  EXPECT_TRUE(cli::bench_json(report)["steps"][0]["allocations"].is_null());
}

}  // namespace
}  // namespace draftsmith
