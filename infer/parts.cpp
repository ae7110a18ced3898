#include "infer/parts.h"

#include <functional>
#include <map>

#include "infer/acceptance/accept_all.h"
#include "infer/acceptance/exact.h"
#include "infer/acceptance/rejection.h"
#include "infer/acceptance/rollback.h"
#include "infer/windows/dynamic.h"
#include "infer/windows/entropy.h"
#include "infer/windows/fallback.h"
#include "infer/windows/fixed.h"
#include "infer/windows/oracle.h"
#include "infer/windows/router.h"

namespace draftsmith::infer {

namespace {

template <class Part, class... Inputs>
using Registry = std::map<std::string, std::function<std::unique_ptr<Part>(const DecodeOptions&, Inputs...)>>;
using WindowRules = Registry<WindowRule, const WindowInputs&>;
using AcceptanceRules = Registry<AcceptanceRule>;

std::unique_ptr<WindowRule> dynamic_window(const DecodeOptions& options) {
  const bool heuristic = options.schedule == "heuristic";
  return std::make_unique<DynamicWindow>(DynamicWindowOptions{options.window.value_or(heuristic ? 5 : 20), heuristic,
                                                              options.confidence.value_or(heuristic ? 0 : 0.4)});
}

std::unique_ptr<WindowRule> router_window(const DecodeOptions& options, const WindowInputs& inputs) {
  if (inputs.router == nullptr) {
    throw UserError({.where = "window router",
                     .what = "this window rule asks a router, and none was given",
                     .expected = "the directory of a router",
                     .found = "none",
                     .hint = "give --router DIR (router = \"DIR\" in a suite), made by a stage of kind router"});
  }
  const model::RouterConfig& config = inputs.router->config();
  return std::make_unique<RouterWindow>(*inputs.router, options.threshold.value_or(config.threshold),
                                        options.max_draft.value_or(config.max_draft));
}

std::unique_ptr<WindowRule> oracle_window(const DecodeOptions& options, const WindowInputs& inputs) {
  if (inputs.accepted_lengths == nullptr) {
    throw UserError({.where = "window oracle",
                     .what = "knows where the next rejection is only from an earlier run",
                     .expected = "an evaluation, which makes that run",
                     .found = "none",
                     .hint = "use window_rule = \"oracle\" in a suite of `draftsmith eval`"});
  }
  return std::make_unique<OracleWindow>(options.longest_draft(), *inputs.accepted_lengths);
}

const WindowRules& window_rules() {
  using O = DecodeOptions;
  using I = WindowInputs;
  static const WindowRules kRules = {
      {"fixed", [](const O& o, const I&) { return std::make_unique<FixedWindow>(o.window.value_or(5)); }},
      {"fallback",
       [](const O& o, const I&) { return std::make_unique<FallbackWindow>(o.fallback, o.longest_draft()); }},
      {"dynamic", [](const O& o, const I&) { return dynamic_window(o); }},
      {"entropy",
       [](const O& o, const I&) { return std::make_unique<EntropyWindow>(o.max_entropy, o.longest_draft()); }},
      {"router", router_window},
      {"oracle", oracle_window}};
  return kRules;
}

RollbackRule rollback_rule(const std::string& name) {
  if (name == "literal") return RollbackRule::kLiteral;
  return name == "released_code" ? RollbackRule::kReleasedCode : RollbackRule::kEffective;
}

const AcceptanceRules& acceptance_rules() {
  static const AcceptanceRules kRules = {
      {"accept_all", [](const DecodeOptions& o) { return std::make_unique<AcceptAll>(o.free_token); }},
      {"exact", [](const DecodeOptions&) { return std::make_unique<ExactAcceptance>(); }},
      {"rejection", [](const DecodeOptions&) { return std::make_unique<RejectionAcceptance>(); }},
      {"rollback", [](const DecodeOptions& o) {
         return std::make_unique<RollbackAcceptance>(o.rollback, rollback_rule(o.rollback_rule));
       }}};
  return kRules;
}

template <class Rules>
std::vector<std::string> names(const Rules& registry) {
  std::vector<std::string> list;
  for (const auto& entry : registry) list.push_back(entry.first);
  return list;
}

template <class Rules, class... Inputs>
auto make(const Rules& registry, const std::string& kind, const std::string& name, const Inputs&... inputs) {
  const auto found = registry.find(name);
  if (found != registry.end()) return found->second(inputs...);
  std::string known;
  for (const std::string& one : names(registry)) known += (known.empty() ? "" : ", ") + one;
  const std::string near = nearest(name, names(registry));
  throw UserError({.where = kind,
                   .what = "there is no " + kind + " of this name",
                   .expected = "one of " + known,
                   .found = name,
                   .hint = near.empty() ? "" : "did you mean " + near + "?"});
}

}  // namespace

std::vector<std::string> window_rule_names() {
  return names(window_rules());
}
std::vector<std::string> acceptance_rule_names() {
  return names(acceptance_rules());
}

std::unique_ptr<WindowRule> make_window_rule(const std::string& name, const DecodeOptions& options,
                                             const WindowInputs& inputs) {
  return make(window_rules(), "window rule", name, options, inputs);
}

std::unique_ptr<AcceptanceRule> make_acceptance_rule(const std::string& name, const DecodeOptions& options) {
  return make(acceptance_rules(), "acceptance rule", name, options);
}

AcceptanceTraits acceptance_traits(const DecodeOptions& options) {
  return make_acceptance_rule(options.acceptance_name(), options)->traits();
}

DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter, const WindowInputs& inputs) {
  return {std::move(drafter), make_window_rule(options.window_rule_name(), options, inputs),
          make_acceptance_rule(options.acceptance_name(), options)};
}

void check_replay(const AcceptanceTraits& acceptance, const std::string& where, Problems& problems) {
  if (acceptance.target != TargetRole::kVerifies) {
    problems.add({where, "window oracle replays where drafts were rejected, and without verification none is",
                  "an acceptance that verifies: exact, rejection or rollback", "acceptance " + acceptance.name,
                  "use the window fixed"});
  } else if (acceptance.first_from_target) {
    problems.add({where, "window oracle replays window by window, and after a rollback the target writes alone",
                  "rollback_rule effective or literal", "rollback_rule released_code", ""});
  }
}

void validate_parts(const DraftParts& parts, double temperature, Problems& problems) {
  const DrafterTraits drafter = parts.drafter->traits();
  const WindowTraits window = parts.window->traits();
  const AcceptanceTraits acceptance = parts.acceptance->traits();
  const auto add = [&](std::string what, std::string expected, std::string found, std::string hint) {
    problems.add({"drafter " + drafter.name + ", window " + window.name + ", acceptance " + acceptance.name,
                  std::move(what), std::move(expected), std::move(found), std::move(hint)});
  };
  if (acceptance.greedy_only && temperature != 0) {
    add("acceptance " + acceptance.name + " compares with the target's most likely token, which is not sampling",
        "temperature 0", "temperature " + std::to_string(temperature), "use the acceptance rejection to sample");
  }
  const bool adds_token = acceptance.target != TargetRole::kReads;
  if (!adds_token && parts.drafter->target_layers().empty()) {
    add("without the free token the target writes nothing, and this drafter does not read it either",
        "drafter tandem, or free_token = true", "drafter " + drafter.name, "decode with the drafter alone");
  } else if (!adds_token && window.decides == Decides::kBeforeToken) {
    add("without the free token a window that may end before its first token would write nothing",
        "a window rule that keeps the token it looks at, or free_token = true", "window " + window.name,
        "use the window fixed or dynamic");
  }
  if (window.replays) {
    check_replay(acceptance, "window " + window.name + ", acceptance " + acceptance.name, problems);
  }
  if (window.replays && temperature != 0) {
    add("window " + window.name + " replays where greedy drafts were rejected, and sampled ones are rejected elsewhere",
        "temperature 0", "temperature " + std::to_string(temperature), "use another window rule to sample");
  }
  if (window.decides != Decides::kUpFront && !drafter.logits) {
    add("window " + window.name + " stops where the drafter is unsure, and this drafter only proposes tokens",
        "a drafter whose probabilities say how sure it is", "drafter " + drafter.name, "use the window fixed");
  }
}

}  // namespace draftsmith::infer
