// The parts of draft-then-verify methods: the lists of window and acceptance rules, and the one validator that says
// which combinations make no sense and why.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "infer/loop/decode_settings.h"

namespace draftsmith::model {
class RouterPredictor;  // model/models/router.h
}

namespace draftsmith::infer {

class AcceptedLengths;  // infer/windows/window_rules.h

// What some window rules need besides options. Must outlive the rules.
struct WindowInputs {
  const model::RouterPredictor* router = nullptr;     // for rules that ask a router
  const AcceptedLengths* accepted_lengths = nullptr;  // for rules that replay
};

// Return the names of all rules.
std::vector<std::string> window_rule_names();
std::vector<std::string> acceptance_rule_names();

// Return the properties of the options' rules, which are known before anything is loaded. Errors: UserError for an
// unknown name.
WindowTraits window_traits(const DecodeOptions& options);
AcceptanceTraits acceptance_traits(const DecodeOptions& options);

// Make the options' rules. Errors: UserError for an unknown name, or if the rule needs an input that is not given.
std::unique_ptr<WindowRule> make_window_rule(const DecodeOptions& options, const WindowInputs& inputs = {});
std::unique_ptr<AcceptanceRule> make_acceptance_rule(const DecodeOptions& options);

// Makes the parts of a method that drafts, around a drafter.
DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter, const WindowInputs& inputs = {});

// The properties of parts that decide whether they belong together.
struct PartTraits {
  DrafterKind drafter;
  WindowTraits window;
  AcceptanceTraits acceptance;
};

// Returns the properties of parts that are made already. A router that they ask is taken to fit the drafter.
PartTraits traits_of(const DraftParts& parts);

// Reports each pair of parts that makes no sense; `temperature` 0 is greedy decoding.
void validate_parts(const PartTraits& parts, double temperature, Problems& problems);

// Returns the problem that the window rule asks a router and none was given.
Problem missing_router(const std::string& where);
// Returns the problem that a router is given for a drafter that is no model of its own.
Problem router_needs_model(const std::string& where, const std::string& drafter);

}  // namespace draftsmith::infer
