// Training, evaluation and scoring, as the program's commands train, eval and score do them.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "base/device.h"
#include "base/logging.h"
#include "base/signals.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "evaluate/suite/suite_options.h"
#include "metrics/metric.h"
#include "python/module/module.h"
#include "recipes/pipeline.h"
#include "recipes/stage.h"

namespace draftsmith::python {
namespace {

namespace py = pybind11;
using Path = std::filesystem::path;
using Texts = std::vector<std::string>;

// While it exists, request_stop() reaches the training or evaluation that runs. It restores the silence.
struct Job {
  SignalWatch watch{SignalWatch::Handlers::kCallers};
  ~Job() { set_quiet(true); }
};

// Runs a recipe; an empty `work` is the program's. Returns a list of dicts: stage, directory, skipped.
py::list train(const Path& file, const Path& work, const std::string& until, bool fresh,
               const std::vector<std::string>& set, const std::string& flags) {
  const recipes::Execution execution{options_of<ExecutionOptions>(flags)};
  std::vector<recipes::StageResult> results;
  {
    const py::gil_scoped_release others;
    begin_execution(execution);
    const recipes::Recipe recipe = recipes::load_recipe(file, set);
    results = recipes::run_recipe(recipe, {.work = work, .until = until, .fresh = fresh, .execution = execution});
  }
  py::list list;
  for (const recipes::StageResult& result : results) {
    list.append(py::dict(py::arg("stage") = result.stage, py::arg("directory") = result.directory.string(),
                         py::arg("skipped") = result.skipped));
  }
  return list;
}

// Runs a suite; an empty `out` is the program's. Returns a dict: directory, results, rows, table, failures.
py::dict evaluate_suite(const Path& file, const Path& out, const std::vector<std::string>& set,
                        const std::string& flags) {
  const recipes::Execution execution{options_of<ExecutionOptions>(flags)};
  Path directory;
  std::optional<evaluate::SuiteResult> result;
  {
    const py::gil_scoped_release others;
    begin_execution(execution);
    evaluate::SuiteOptions options = evaluate::load_suite(file, set);
    execution.apply_to(options);
    directory = out.empty() ? Path("results") / options.name : out;
    evaluate::require_replaceable_results(directory / "results.json");
    result = evaluate::run_evaluation(options, directory);
  }
  py::list failures;
  for (const Problem& problem : result->failures) failures.append(text_of(to_string(problem)));
  return py::dict(py::arg("directory") = directory, py::arg("results") = object_of(evaluate::to_json(result->results)),
                  py::arg("rows") = object_of(evaluate::results_rows(result->results)),
                  py::arg("table") = result->table, py::arg("failures") = failures);
}

void require_as_many(const std::string& where, size_t lines, size_t expected) {
  if (lines == expected && expected > 0) return;
  throw UserError(
      {.where = where,
       .what = expected == 0 ? "there is nothing to score" : "the lists differ in their number of texts",
       .expected = expected == 0 ? "at least one text" : fmt::format("{} texts, as in hypotheses", expected),
       .found = fmt::format("{} texts", lines)});
}

// Scores texts. Returns the dict of `draftsmith score --json`.
py::object score(const std::string& name, Texts hypotheses, std::vector<Texts> references, std::optional<Texts> other,
                 Texts sources, int64_t resamples, uint64_t seed, const std::string& options) {
  metrics::require_scoring_metric(name);
  const auto metric = metrics::make_metric(options_of<metrics::MetricOptions>(options));
  if (resamples < 10 || resamples > 1000000) {
    throw UserError({.where = "resamples",
                     .what = "the value is not allowed",
                     .expected = "an integer from 10 to 1000000",
                     .found = std::to_string(resamples)});
  }
  const size_t lines = hypotheses.size();
  require_as_many("hypotheses", lines, lines);
  require_as_many("references", references.size(), std::max<size_t>(1, references.size()));
  for (const Texts& stream : references) require_as_many("references", stream.size(), lines);
  if (!sources.empty()) require_as_many("sources", sources.size(), lines);
  if (other) require_as_many("other", other->size(), lines);
  nlohmann::ordered_json json;
  {
    const py::gil_scoped_release others;
    SignalPoll poll;
    const LongWork work({}, [&poll] { poll(); });
    json = metrics::to_json(*metric, metrics::score_texts(*metric,
                                                          {.hypotheses = std::move(hypotheses),
                                                           .references = std::move(references),
                                                           .sources = std::move(sources),
                                                           .other_system = std::move(other)},
                                                          {.resamples = resamples, .seed = seed}));
  }
  return object_of(json);
}

}  // namespace

void define_jobs(py::module_& module) {
  py::class_<Job>(module, "Job").def(py::init<>());
  module.def("request_stop", [] { request_stop(SIGINT); });
  module.def("train", &train);
  module.def("evaluate", &evaluate_suite);
  module.def("score", &score);
}

}  // namespace draftsmith::python
