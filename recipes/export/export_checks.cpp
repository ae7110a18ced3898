#include "recipes/export/export_checks.h"

#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "recipes/export/export_formats.h"
#include "recipes/export/measurements.h"
#include "recipes/inspection.h"

namespace draftsmith::recipes {

at::ScalarType stored_type(const model::ModelDirectory& opened) {
  std::set<std::string> types;
  std::set<std::string> others;  // without parameters that stay fp32 in fp16
  for (const auto& [parameter, stored] : opened.parameters()) {
    const std::string& dtype = opened.weights().entry(stored.name).dtype;
    types.insert(dtype);
    if (dtype != "F32" || !model::keeps_fp32_in_half(opened.config(), parameter.name)) others.insert(dtype);
  }
  if (others == std::set<std::string>{"F16"}) return at::kHalf;
  if (types.contains("F64")) return at::kDouble;
  if (types.size() == 1) return model::float_type(*types.begin()).value();
  return at::kFloat;
}

void check_model(const model::ModelDirectory& opened, const ExportOptions& options) {
  std::optional<model::TransformerConfig> target;
  if (options.target) target = model::load_config(*options.target);
  Problems problems;
  export_format_named(options.format).check(options.model.string(), opened.config(), target, problems);
  problems.add_all(verify(options.model));
  problems.throw_if_any();
  if (options.results) measurements_of(*options.results, options.model);  // reports errors before any work
}

void require_finite_logits(const at::Tensor& logits, const std::filesystem::path& model) {
  if (at::isfinite(logits).all().item<bool>()) return;
  throw UserError({.where = model.string(),
                   .what = "the model gives logits that are not finite for the probes",
                   .expected = "finite logits",
                   .found = fmt::format("{} of {} are NaN or infinite",
                                        at::isfinite(logits).logical_not().sum().item<int64_t>(), logits.numel()),
                   .hint = "its training diverged, or the files are damaged; export another checkpoint"});
}

void throw_type_too_narrow(const ExportOptions& options, const Problem& problem) {
  throw UserError({.where = options.model.string(),
                   .what = fmt::format("the model cannot be held in {}: {}", options.dtype, problem.what),
                   .expected = problem.expected,
                   .found = problem.found,
                   .hint = options.dtype == "fp16" ? "choose --dtype stored or bf16" : "choose --dtype stored"});
}

void throw_mismatch(const std::vector<Problem>& problems, const std::filesystem::path& out) {
  const Problem& first = problems.front();
  throw RunError({.where = out.string(),
                  .what = fmt::format("the written model differs from its source in {} ways; {}: {}", problems.size(),
                                      first.where, first.what),
                  .expected = first.expected,
                  .found = first.found,
                  .hint = "the export was removed and the model is unchanged; check disk and memory for faults"});
}

}  // namespace draftsmith::recipes
