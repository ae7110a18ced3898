#include "infer/parts.h"

#include "base/registry.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {

namespace {

using O = DecodeOptions;
using M = GenerationModels;

struct WindowRuleEntry {
  std::string name;
  WindowTraits (*traits)(const O&);
  std::unique_ptr<WindowRule> (*make)(const O&, const M&);
};

struct AcceptanceRuleEntry {
  std::string name;
  std::unique_ptr<AcceptanceRule> (*make)(const O&);  // a rule's traits cost no more than making it
};

template <class Rule>
WindowTraits kind_of_rule(const O&) {
  return Rule::kind();
}

DynamicWindowOptions dynamic_options(const O& options) {
  const WindowSchedule schedule = window_schedules().at(options.schedule);
  const bool constant = schedule == WindowSchedule::kConstant;
  return {options.window.value_or(constant ? 20 : 5), schedule, options.confidence.value_or(constant ? 0.4 : 0)};
}

std::unique_ptr<WindowRule> router_window(const O& options, const M& models) {
  if (models.router == nullptr) throw UserError(missing_router("window router"));
  const model::RouterConfig& config = models.router->config();
  return std::make_unique<RouterWindow>(*models.router, options.threshold.value_or(config.threshold),
                                        options.max_draft.value_or(config.max_draft));
}

std::unique_ptr<WindowRule> oracle_window(const O& options, const M& models) {
  if (models.accepted_lengths == nullptr) {
    throw UserError({.where = "window oracle",
                     .what = "knows where the next rejection is only from an earlier run",
                     .expected = "an evaluation, which makes that run",
                     .found = "none",
                     .hint = "use window_rule = \"oracle\" in a suite of `draftsmith eval`"});
  }
  return std::make_unique<OracleWindow>(options.longest_draft(), *models.accepted_lengths);
}

template <class Part, class Rule, class... Arguments>
std::unique_ptr<Part> rule(Arguments... arguments) {
  return std::make_unique<Rule>(arguments...);
}

const Registry<WindowRuleEntry>& window_rules() {
  using W = WindowRule;
  static const Registry<WindowRuleEntry> kRules(
      "window rule", {{"fixed", kind_of_rule<FixedWindow>,
                       [](const O& o, const M&) { return rule<W, FixedWindow>(o.fixed_window()); }},
                      {"fallback", kind_of_rule<FallbackWindow>,
                       [](const O& o, const M&) { return rule<W, FallbackWindow>(o.fallback, o.longest_draft()); }},
                      {"dynamic", [](const O& o) { return DynamicWindow::kind(dynamic_options(o)); },
                       [](const O& o, const M&) { return rule<W, DynamicWindow>(dynamic_options(o)); }},
                      {"entropy", kind_of_rule<EntropyWindow>,
                       [](const O& o, const M&) { return rule<W, EntropyWindow>(o.max_entropy, o.longest_draft()); }},
                      {"router", kind_of_rule<RouterWindow>, router_window},
                      {"oracle", kind_of_rule<OracleWindow>, oracle_window}});
  return kRules;
}

const Registry<AcceptanceRuleEntry>& acceptance_rules() {
  using A = AcceptanceRule;
  static const Registry<AcceptanceRuleEntry> kRules(
      "acceptance rule", {{"accept_all", [](const O& o) { return rule<A, AcceptAll>(o.free_token); }},
                          {"exact", [](const O&) { return rule<A, ExactAcceptance>(); }},
                          {"rejection", [](const O& o) { return rule<A, RejectionAcceptance>(o.lenience); }},
                          {"block", [](const O&) { return rule<A, BlockAcceptance>(); }},
                          {"rollback", [](const O& o) {
                             return rule<A, RollbackAcceptance>(o.rollback, rollback_rules().at(o.rollback_rule),
                                                                o.verify_end);
                           }}});
  return kRules;
}

template <class Add>
void check_free_token(const PartTraits& parts, const Add& add) {
  if (parts.acceptance.target != TargetRole::kReads) return;
  if (!parts.drafter.reads_target) {
    add("without the free token the target writes nothing, and this drafter does not read it either",
        "drafter tandem, or free_token = true", "drafter " + std::string(parts.drafter.name),
        "decode with the drafter alone");
  } else if (parts.window.decides == Decides::kBeforeToken) {
    add("without the free token a window that may end before its first token would write nothing",
        "a window rule that keeps the token it looks at, or free_token = true", "window " + parts.window.name,
        "use the window fixed or dynamic");
  }
}

// A window that replays an earlier pass must not fall out of step with it.
template <class Add>
void check_replay(const PartTraits& parts, double temperature, const Add& add) {
  const AcceptanceTraits& acceptance = parts.acceptance;
  const std::string window = "window " + parts.window.name;
  if (acceptance.target != TargetRole::kVerifies) {
    add(window + " replays where drafts were rejected, and without verification none is",
        "an acceptance that verifies: exact, rejection or rollback", "acceptance " + acceptance.name,
        "use the window fixed");
  }
  if (temperature != 0) {
    add(window + " replays where greedy drafts were rejected, and sampled ones are rejected elsewhere", "temperature 0",
        "temperature " + std::to_string(temperature), "use another window rule to sample");
  }
  if (!parts.drafter.logits) {
    add(window + " replays whole windows, and this drafter ends its drafts where it likes",
        "a drafter with probabilities", "drafter " + std::string(parts.drafter.name), "use the window fixed");
  }
}

}  // namespace

std::vector<std::string> window_rule_names() {
  return window_rules().names();
}
std::vector<std::string> acceptance_rule_names() {
  return acceptance_rules().names();
}

WindowTraits window_traits(const DecodeOptions& options) {
  return window_rules().at(options.window_rule_name()).traits(options);
}

AcceptanceTraits acceptance_traits(const DecodeOptions& options) {
  return make_acceptance_rule(options)->traits();
}

std::unique_ptr<AcceptanceRule> make_acceptance_rule(const DecodeOptions& options) {
  return acceptance_rules().at(options.acceptance_name()).make(options);
}

DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter, const GenerationModels& models) {
  return {std::move(drafter), window_rules().at(options.window_rule_name()).make(options, models),
          make_acceptance_rule(options)};
}

void validate_parts(const PartTraits& parts, double temperature, Problems& problems) {
  const DrafterTraits& drafter = parts.drafter;
  const WindowTraits& window = parts.window;
  const AcceptanceTraits& acceptance = parts.acceptance;
  const std::string where =
      "drafter " + std::string(drafter.name) + ", window " + window.name + ", acceptance " + acceptance.name;
  const auto add = [&](std::string what, std::string expected, std::string found, std::string hint) {
    problems.add({where, std::move(what), std::move(expected), std::move(found), std::move(hint)});
  };
  if (acceptance.greedy_only && temperature != 0) {
    add("acceptance " + acceptance.name + " compares with the target's most likely token, which is not sampling",
        "temperature 0", "temperature " + std::to_string(temperature), "use the acceptance rejection to sample");
  }
  check_free_token(parts, add);
  if (window.replays) check_replay(parts, temperature, add);
  if (window.asks_router && !drafter.is_model) {
    problems.add(router_needs_model("window " + window.name, std::string(drafter.name)));
  } else if (window.decides != Decides::kUpFront && !drafter.logits) {
    add("window " + window.name + " stops where the drafter is unsure, and this drafter only proposes tokens",
        "a drafter whose probabilities say how sure it is", "drafter " + std::string(drafter.name),
        "use the window fixed");
  }
}

Problem missing_router(const std::string& where) {
  return {.where = where,
          .what = "this window rule asks a router, and none was given",
          .expected = "the directory of a router",
          .found = "none",
          .hint = "give --router DIR (router = \"DIR\" in a suite), made by a stage of kind router"};
}

Problem router_needs_model(const std::string& where, const std::string& drafter) {
  return {.where = where,
          .what = "a router is trained for a drafter that is a model of its own",
          .expected = "a model or a Tandem secondary as drafter",
          .found = drafter.empty() ? "none" : drafter,
          .hint = "the windows dynamic, entropy and fallback need no router"};
}

}  // namespace draftsmith::infer
