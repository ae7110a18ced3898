// Suites on real model directories: small T5s with random weights, token ids as text.
#pragma once

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "model/files/checkpoint.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::evaluate {

inline void write_model(const std::filesystem::path& directory, int64_t decoder_layers, uint64_t seed,
                        int64_t vocabulary = 40) {
  model::save_model(
      directory,
      model::TransformerModel(model::t5_config({.vocabulary = vocabulary, .decoder_layers = decoder_layers}), seed));
}

// A suite of one task of ids, whose lines are their own references, for the target in `root`; in fp64 so that exact
// methods are exact.
inline SuiteOptions suite_of_ids(const std::filesystem::path& root, int64_t lines) {
  std::string text;
  for (int64_t line = 0; line < lines; ++line) text += fmt::format("{} {} {} 1\n", 5 + line, 20 - line, 7 + 2 * line);
  write_file_atomic(root / "source", text);
  write_file_atomic(root / "reference", text);
  SuiteOptions options;
  options.model = root / "target";
  TaskOptions task{.name = "ids", .source = root / "source", .references = {root / "reference"}, .ids = true};
  task.metric.tokenize = "none";
  options.task = {task};
  options.warmup = 1;
  options.dtype = "fp64";
  options.device = "cpu";
  options.threads = 1;
  return options;
}

// Returns the number of settings whose lossless check failed.
inline int64_t failed_lossless_checks(const SuiteResult& result) {
  int64_t failed = 0;
  for (const TaskResult& task : result.results.tasks) {
    failed += std::ranges::count_if(task.rows(), [](const auto* row) { return !row->lossless_check.value_or(true); });
  }
  return failed;
}

// Two models and a task of ids.
class ModelSuite : public testing::Test {
 protected:
  ModelSuite() {
    write_model(root_ / "target", 3, 1);
    write_model(root_ / "small", 1, 2);
    options_ = suite_of_ids(root_.path(), 10);
    options_.drafter = {{"small", root_ / "small"}, {"self", root_ / "target"}};
    options_.max_new_tokens = 12;
    options_.repetitions = 2;
    options_.resamples = 100;
  }

  SettingGrid& add_run(const std::string& method, const std::string& drafter) {
    SettingGrid& run = options_.run.emplace_back();
    run.decode.method = method;
    if (!drafter.empty()) run.drafter = {drafter};
    return run;
  }

  // Measures neither step times nor predictions, which most suites here need not.
  void measure_little() {
    options_.repetitions = 1;
    options_.forced_lines = 0;
    options_.calibrate = false;
  }

  // Returns the problems that are known before models are loaded.
  std::string problems() const { return option_problems(options_); }

  nlohmann::ordered_json run_suite() {
    Problems found;
    validate_options(options_, "", found);
    found.throw_if_any();
    return to_json(run_evaluation(options_, root_ / "out").results);
  }

  static nlohmann::ordered_json find(const nlohmann::ordered_json& results, const std::string& name) {
    for (const auto& run : results.at("tasks").at(0).at("runs")) {
      if (run.at("name") == name) return run;
    }
    ADD_FAILURE() << "no run " << name;
    return {};
  }

  // Of the references, which the models were not trained on.
  static void expect_predicts_as_the_target(const nlohmann::ordered_json& results, const std::string& drafter) {
    const auto& models = results.at("tasks").at(0).at("prediction").at("models");
    const auto& own = models.at(drafter);
    const auto& target = models.at("target");
    EXPECT_GT(own.at("cross_entropy"), 0);
    EXPECT_NEAR(own.at("cross_entropy").get<double>(), target.at("cross_entropy").get<double>(), 1e-9);
    EXPECT_EQ(own.at("accuracy"), target.at("accuracy"));
    EXPECT_DOUBLE_EQ(own.at("relative_accuracy"), 1);
    EXPECT_NEAR(own.at("relative_tv").get<double>(), 0, 1e-9);
  }

  const TemporaryDirectory root_;
  SuiteOptions options_;
};

}  // namespace draftsmith::evaluate
