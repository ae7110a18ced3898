#include "evaluate/suite/setting_checks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "evaluate/suite/setting_grid.h"
#include "infer/drafters/prompt_lookup_drafter.h"
#include "infer/part_options.h"
#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

template <class Spec>
bool is(const std::optional<infer::DrafterSpec>& drafter) {
  return drafter && std::holds_alternative<Spec>(*drafter);
}

// Prompt look-up needs no file to say which parts it fits.
void check_lookup(const Setting& run, const std::string& where, Problems& problems) {
  Problems found;
  infer::validate_parts(
      infer::make_parts(run.decode, std::make_unique<infer::PromptLookupDrafter>(infer::kLongestLookup)),
      run.temperature(), found);
  for (Problem problem : found.list()) {
    problem.where = where + ", " + problem.where;
    problems.add(std::move(problem));
  }
}

// Window rules that need more than options. False when the parts cannot be made to be checked further.
bool check_window(const Setting& run, const std::optional<infer::DrafterSpec>& drafter, const std::string& where,
                  Problems& problems) {
  const bool lookup = is<infer::LookupSpec>(drafter);
  const std::string rule = run.decode.window_rule_name();
  if (rule == "oracle" && run.temperature() != 0) {
    problems.add({where + ".temperature",
                  "window oracle replays where greedy drafts were rejected, and sampled ones are rejected elsewhere",
                  "temperature 0", fmt::format("{}", run.temperature()), "use another window rule to sample"});
  }
  if (rule == "oracle") {
    const auto acceptance = infer::make_acceptance_rule(run.decode.acceptance_name(), run.decode);
    infer::check_replay(acceptance->traits(), where, problems);
  }
  if (rule == "router" && run.decode.router.empty()) {
    problems.add({where + ".router", "window router asks a router, and none was given", "the directory of a router",
                  "none", "a router is made by a stage of kind router"});
  } else if (rule != "router" && !run.decode.router.empty()) {
    problems.add({where + ".window_rule", "a router is asked by the window router alone", "router",
                  rule.empty() ? "none" : rule, "set window_rule = \"router\", or leave router out"});
  }
  const bool needs_model = rule == "router" || rule == "oracle";
  if (needs_model && lookup) {
    problems.add({where, "window " + rule + " is for drafters that are models", "a model or a Tandem secondary",
                  "prompt look-up", "use the window fixed"});
  }
  if (rule == "router" && is<infer::ExitSpec>(drafter)) {
    problems.add({where, "a router is trained for a drafter that is a model of its own",
                  "a model or a Tandem secondary", run.drafter.empty() ? "the model's first layers" : run.drafter,
                  "use the window dynamic, entropy or fallback"});
  }
  return !needs_model || !lookup;
}

// What can be said of a setting without its models.
void check_setting(const Setting& run, const std::optional<infer::DrafterSpec>& drafter, const std::string& where,
                   Problems& problems) {
  const size_t before = problems.list().size();
  validate_options(run.decode, where, problems);
  const bool wants_drafter = run.decode.drafts() && !run.decode.drafts_inside();
  if (wants_drafter == run.drafter.empty()) {
    problems.add({where, "the method and the drafter don't fit together",
                  (wants_drafter ? "a drafter, for method " : "no drafter, for method ") + run.method(),
                  run.drafter.empty() ? "none" : run.drafter,
                  run.decode.drafts_inside() ? "its drafter is the model's own first layers: give exit_layer" : ""});
  }
  if (problems.list().size() != before || !run.decode.drafts()) return;
  if (!check_window(run, drafter, where, problems)) return;
  if (is<infer::LookupSpec>(drafter)) return check_lookup(run, where, problems);
  if (run.temperature() == 0) return;
  const auto acceptance = infer::make_acceptance_rule(run.decode.acceptance_name(), run.decode)->traits();
  if (!acceptance.greedy_only) return;
  problems.add({where, "acceptance " + acceptance.name + " takes the most likely token and samples nothing",
                "temperature 0", fmt::format("temperature {}", run.temperature()),
                "use the acceptance rejection to sample"});
}

// Options given to a run that none of its parts reads would make settings of different names that are all the same.
void check_unused(const SettingGrid& run, const std::string& where, Problems& problems) {
  const std::map<std::string, bool> given{{"window", !run.window.empty()},
                                          {"schedule", !run.schedule.empty()},
                                          {"confidence", !run.confidence.empty()},
                                          {"fallback", !run.fallback.empty()},
                                          {"max_draft", !run.max_draft.empty()},
                                          {"max_entropy", !run.max_entropy.empty()},
                                          {"threshold", !run.threshold.empty()},
                                          {"rollback", !run.rollback.empty()},
                                          {"rollback_rule", !run.rollback_rule.empty()},
                                          {"free_token", !run.free_token},
                                          {"exit_layer", !run.exit_layer.empty()},
                                          {"exit_measure", !run.exit_measure.empty()},
                                          {"exit_threshold", !run.exit_threshold.empty()},
                                          {"exit_decay", !run.exit_decay.empty()},
                                          {"early_layer", !run.early_layer.empty()},
                                          {"candidates", !run.candidates.empty()},
                                          {"execution", !run.execution.empty()}};
  const infer::DecodeOptions decode = expand_run(run).front().decode;
  for (const infer::PartOption& option : infer::part_options(decode)) {
    const auto found = given.find(option.name);
    if (option.used || found == given.end() || !found->second) continue;
    problems.add({where + "." + option.name, "this run does not read the option", option.readers,
                  decode.drafts() ? fmt::format("method {} with window_rule {}, acceptance {}", run.method,
                                                decode.window_rule_name(), decode.acceptance_name())
                                  : "method " + run.method,
                  "leave " + option.name + " out"});
  }
}

// The same of exits, which a drafter may read as well as a method.
void check_exits(const SettingGrid& run, const std::vector<infer::DrafterOptions>& drafters, const std::string& where,
                 Problems& problems) {
  if (run.exits.empty()) return;
  for (const Setting& point : expand_run(run)) {
    if (point.inside() || is<infer::ExitSpec>(drafter_spec(point, drafters))) continue;
    problems.add({where + ".exits", "this run does not read the option",
                  "method early-exit, calm or ppd, or a [[drafter]] with exit = its layers",
                  "method " + run.method + (point.drafter.empty() ? "" : " with drafter " + point.drafter),
                  "leave exits out"});
  }
}

}  // namespace

std::optional<infer::DrafterSpec> drafter_spec(const Setting& setting,
                                               const std::vector<infer::DrafterOptions>& drafters) {
  if (setting.decode.drafts_inside()) return infer::ExitSpec{setting.decode.exit_layer.value_or(0)};
  const auto found = std::ranges::find(drafters, setting.drafter, &infer::DrafterOptions::name);
  return found == drafters.end() ? std::nullopt : std::optional(found->spec());
}

void check_run(const SettingGrid& run, const std::vector<infer::DrafterOptions>& drafters, const std::string& where,
               Problems& problems) {
  Problems found;
  for (const Setting& point : expand_run(run)) check_setting(point, drafter_spec(point, drafters), where, found);
  if (found.list().empty()) {
    check_unused(run, where, found);
    check_exits(run, drafters, where, found);
  }
  if (!run.choose_on.empty() && run.max_drop.empty()) {
    found.add({where + ".max_drop", "with choose_on a setting is chosen for each value", "at least one value", "none",
               "leave choose_on out to run the whole grid on every task"});
  }
  std::set<std::string> seen;  // the points share their mistakes
  for (const Problem& problem : found.list()) {
    if (seen.insert(to_string(problem)).second) problems.add(problem);
  }
}

}  // namespace draftsmith::evaluate
