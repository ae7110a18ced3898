#include "infer/parts.h"

#include <functional>
#include <map>

#include "infer/acceptance/exact.h"
#include "infer/acceptance/rejection.h"
#include "infer/acceptance/rollback.h"
#include "infer/windows/dynamic.h"
#include "infer/windows/fallback.h"
#include "infer/windows/fixed.h"

namespace draftsmith::infer {

namespace {

template <class Part>
using Registry = std::map<std::string, std::function<std::unique_ptr<Part>(const DecodeOptions&)>>;

const Registry<WindowRule>& window_rules() {
  static const Registry<WindowRule> kRules = {
      {"fixed", [](const DecodeOptions& o) { return std::make_unique<FixedWindow>(o.window.value_or(5)); }},
      {"fallback", [](const DecodeOptions& o) { return std::make_unique<FallbackWindow>(o.fallback, o.max_draft); }},
      {"dynamic", [](const DecodeOptions& o) {
         const bool heuristic = o.schedule == "heuristic";
         return std::make_unique<DynamicWindow>(DynamicWindowOptions{o.window.value_or(heuristic ? 5 : 20), heuristic,
                                                                     o.confidence.value_or(heuristic ? 0 : 0.4)});
       }}};
  return kRules;
}

RollbackRule rollback_rule(const std::string& name) {
  if (name == "literal") return RollbackRule::kLiteral;
  return name == "released_code" ? RollbackRule::kReleasedCode : RollbackRule::kEffective;
}

const Registry<AcceptanceRule>& acceptance_rules() {
  static const Registry<AcceptanceRule> kRules = {
      {"exact", [](const DecodeOptions&) { return std::make_unique<ExactAcceptance>(); }},
      {"rejection", [](const DecodeOptions&) { return std::make_unique<RejectionAcceptance>(); }},
      {"rollback", [](const DecodeOptions& o) {
         return std::make_unique<RollbackAcceptance>(o.rollback, rollback_rule(o.rollback_rule));
       }}};
  return kRules;
}

template <class Part>
std::vector<std::string> names(const Registry<Part>& registry) {
  std::vector<std::string> list;
  for (const auto& entry : registry) list.push_back(entry.first);
  return list;
}

template <class Part>
std::unique_ptr<Part> make(const Registry<Part>& registry, const std::string& kind, const std::string& name,
                           const DecodeOptions& options) {
  const auto found = registry.find(name);
  if (found != registry.end()) return found->second(options);
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

std::unique_ptr<WindowRule> make_window_rule(const std::string& name, const DecodeOptions& options) {
  return make(window_rules(), "window rule", name, options);
}

std::unique_ptr<AcceptanceRule> make_acceptance_rule(const std::string& name, const DecodeOptions& options) {
  return make(acceptance_rules(), "acceptance rule", name, options);
}

DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter) {
  return {std::move(drafter), make_window_rule(options.window_rule_name(), options),
          make_acceptance_rule(options.acceptance_name(), options)};
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
  if (acceptance.needs_distribution && !drafter.distribution && temperature != 0) {
    add("acceptance " + acceptance.name + " needs the probability the drafter gave its tokens",
        "a drafter that gives a distribution", "drafter " + drafter.name, "use the acceptance exact at temperature 0");
  }
  if (acceptance.lossless && window.decides == Decides::kAfterDropped && temperature != 0) {
    add("a token that was sampled and is then dropped unverified biases the output",
        "a window rule that decides before a token is sampled, or keeps it", "window " + window.name,
        "use the window fixed, fallback or dynamic");
  }
  if (window.needs_confidence && !drafter.confidence) {
    add("window " + window.name + " stops where the drafter is unsure, which this drafter cannot tell",
        "a drafter whose probabilities say how sure it is", "drafter " + drafter.name, "use the window fixed");
  } else if (window.decides != Decides::kUpFront && !drafter.logits) {
    add("window " + window.name + " looks at the drafter's probabilities, and this drafter only names tokens",
        "a drafter with probabilities", "drafter " + drafter.name, "use the window fixed");
  }
}

}  // namespace draftsmith::infer
