#include "python/module/jobs.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pybind11/stl.h>

#include "cli/flags.h"
#include "cli/inputs.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "metrics/scoring.h"
#include "python/module/errors.h"
#include "python/module/signals.h"
#include "python/module/values.h"
#include "recipes/pipeline.h"

namespace draftsmith::python {

namespace py = pybind11;

py::list train(const JobFiles& files, const std::string& until, bool fresh, const py::dict& flags) {
  const auto execution = options_of<recipes::Execution>(flags);
  std::vector<recipes::StageResult> results;
  run_job([&] {
    cli::begin_execution(execution);
    const recipes::Recipe recipe = recipes::load_recipe(files.input, files.set);
    recipes::PipelineOptions options;
    options.work = files.output.empty() ? std::filesystem::path("work") / recipe.name : files.output;
    options.until = until;
    options.fresh = fresh;
    options.execution = execution;
    results = recipes::run_recipe(recipe, options);
  });
  py::list list;
  for (const recipes::StageResult& result : results) {
    list.append(py::dict(py::arg("stage") = result.stage, py::arg("directory") = result.directory.string(),
                         py::arg("skipped") = result.skipped));
  }
  return list;
}

py::dict evaluate_suite(const JobFiles& files, const py::dict& flags) {
  const auto execution = options_of<recipes::Execution>(flags);
  std::filesystem::path directory;
  std::optional<evaluate::SuiteResult> result;
  run_job([&] {
    cli::begin_execution(execution);
    evaluate::SuiteOptions options = cli::load_suite(files.input, files.set);
    if (execution.device != "auto") options.device = execution.device;
    if (execution.threads > 0) options.threads = execution.threads;
    directory = files.output.empty() ? std::filesystem::path("results") / options.name : files.output;
    result = evaluate::run_evaluation(options, directory, {.quiet = execution.quiet});
  });
  py::list failures;
  for (const Problem& problem : result->failures) failures.append(to_string(problem));
  return py::dict(py::arg("directory") = directory.string(),
                  py::arg("results") = object_of(evaluate::to_json(result->results)),
                  py::arg("rows") = object_of(evaluate::results_rows(result->results)),
                  py::arg("table") = result->table, py::arg("failures") = failures);
}

namespace {

void require_as_many(const std::string& where, size_t lines, size_t expected) {
  if (lines == expected && expected > 0) return;
  throw UserError(
      {.where = where,
       .what = expected == 0 ? "there is nothing to score" : "the lists differ in their number of texts",
       .expected = expected == 0 ? "at least one text" : fmt::format("{} texts, as in hypotheses", expected),
       .found = fmt::format("{} texts", lines)});
}

}  // namespace

py::object score(const std::string& name, const std::vector<std::string>& hypotheses,
                 const std::vector<std::vector<std::string>>& references, const py::object& other, py::dict options) {
  metrics::require_scoring_metric(name);
  metrics::ResamplingOptions resampling;
  resampling.resamples = options.attr("pop")("resamples", resampling.resamples).cast<int64_t>();
  resampling.seed = options.attr("pop")("seed", resampling.seed).cast<uint64_t>();
  const auto sources = options.attr("pop")("sources", py::list()).cast<std::vector<std::string>>();
  if (resampling.resamples < 10 || resampling.resamples > 1000000) {
    throw UserError({.where = "resamples",
                     .what = "the value is not allowed",
                     .expected = "an integer from 10 to 1000000",
                     .found = std::to_string(resampling.resamples)});
  }
  options["name"] = name;
  const auto metric = metrics::make_metric(options_of<metrics::MetricOptions>(options));
  metrics::ScoredTexts texts{.hypotheses = hypotheses, .references = references, .sources = sources};
  if (!other.is_none()) texts.other_system = other.cast<std::vector<std::string>>();
  require_as_many("hypotheses", hypotheses.size(), hypotheses.size());
  require_as_many("references", references.size(), std::max<size_t>(1, references.size()));
  for (const auto& stream : references) require_as_many("references", stream.size(), hypotheses.size());
  if (!sources.empty()) require_as_many("sources", sources.size(), hypotheses.size());
  if (texts.other_system) require_as_many("other", texts.other_system->size(), hypotheses.size());
  nlohmann::ordered_json json;
  {
    const py::gil_scoped_release others;
    json = metrics::to_json(*metric, metrics::score_texts(*metric, texts, resampling));
  }
  return object_of(json);
}

}  // namespace draftsmith::python
