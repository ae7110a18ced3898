#include "evaluate/suite/setting_checks.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

// Returns whether the setting's method and drafter belong together, and adds a problem if not.
bool check_drafter(const Setting& setting, const std::string& where, Problems& problems) {
  const bool wants_drafter = setting.decode.drafts() && !setting.decode.drafts_inside();
  if (wants_drafter != setting.drafter.empty()) return true;
  problems.add({where, "the method and the drafter don't fit together",
                (wants_drafter ? "a drafter, for method " : "no drafter, for method ") + setting.method(),
                setting.drafter.empty() ? "none" : setting.drafter,
                setting.decode.drafts_inside() ? "its drafter is the model's own first layers: give exit_layer" : ""});
  return false;
}

// Adds the problems of parts that make no sense together, as far as they are known before models are loaded.
void check_parts(const Setting& setting, const infer::DrafterSpec& drafter, const std::string& where,
                 Problems& problems) {
  const infer::PartTraits parts{infer::kind_of(drafter), infer::window_traits(setting.decode),
                                infer::acceptance_traits(setting.decode)};
  Problems found;
  infer::validate_parts(parts, setting.temperature(), found);
  for (Problem problem : found.list()) {
    problem.where = where + ", " + problem.where;
    problems.add(std::move(problem));
  }
  if (parts.window.asks_router && setting.decode.router.empty()) problems.add(infer::missing_router(where));
}

// Adds the problems of a setting that are known before models are loaded.
void check_setting(const Setting& setting, const std::optional<infer::DrafterSpec>& drafter, const std::string& where,
                   Problems& problems) {
  Problems options;
  validate_options(setting.decode, where, options);
  for (const Problem& problem : options.list()) problems.add(problem);
  if (infer::decoding_methods().find(setting.method()) == nullptr || !check_drafter(setting, where, problems)) return;
  if (options.list().empty() && setting.decode.drafts() && drafter) check_parts(setting, *drafter, where, problems);
}

// Adds a problem for each option that no part of the grid reads. Settings that differ only in it would be the same.
void check_unused(const SettingGrid& grid, const DecodeOptions& decode, const std::string& where, Problems& problems) {
  static const DecodeOptions kDefaults;
  const std::vector<Field>& fields = OptionLists<DecodeOptions>::fields().all();
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    const bool given = grid.lists.given(i) || field_json(field, &grid.decode) != field_json(field, &kDefaults);
    if (!given || decode.reads(field)) continue;
    problems.add({where + "." + field.name, "this run does not read the option", infer::readers_of(field),
                  decode.drafts() ? fmt::format("method {} with window_rule {}, acceptance {}", decode.method,
                                                decode.window_rule_name(), decode.acceptance_name())
                                  : "method " + decode.method,
                  "leave " + field.name + " out"});
  }
}

// Adds a problem for exits that nothing reads. Unlike the options in check_unused(), drafters may read them too.
void check_exits(const std::vector<Setting>& settings, const std::vector<infer::DrafterOptions>& drafters,
                 const std::string& where, Problems& problems) {
  for (const Setting& setting : settings) {
    if (setting.decode.exits.empty() || setting.inside()) continue;
    const auto drafter = drafter_spec(setting, drafters);
    if (drafter && std::holds_alternative<infer::ExitSpec>(*drafter)) continue;
    problems.add({where + ".exits", "this run does not read the option",
                  "method early-exit, calm or ppd, or a [[drafter]] with exit = its layers",
                  "method " + setting.method() + (setting.drafter.empty() ? "" : " with drafter " + setting.drafter),
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

void check_grid(const SettingGrid& grid, const std::vector<Setting>& settings,
                const std::vector<infer::DrafterOptions>& drafters, const std::string& where, Problems& problems) {
  Problems found;
  for (const Setting& setting : settings) check_setting(setting, drafter_spec(setting, drafters), where, found);
  if (found.list().empty()) {
    check_unused(grid, settings.front().decode, where, found);
    check_exits(settings, drafters, where, found);
  }
  if (!grid.choose_on.empty() && grid.max_drop.empty()) {
    found.add({where + ".max_drop", "with choose_on a setting is chosen for each value", "at least one value", "none",
               "leave choose_on out to run the whole grid on every task"});
  }
  std::set<std::string> seen;  // settings of one grid share their mistakes
  for (const Problem& problem : found.list()) {
    if (seen.insert(to_string(problem)).second) problems.add(problem);
  }
}

}  // namespace draftsmith::evaluate
