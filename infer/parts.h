// The parts of draft-then-verify methods: the lists of window and acceptance rules, and the one validator that says
// which combinations make no sense and why.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/decode_options.h"
#include "infer/load_models.h"
#include "infer/loop/decode_loop.h"

namespace draftsmith::infer {

// Return the names of all rules.
std::vector<std::string> window_rule_names();
std::vector<std::string> acceptance_rule_names();

// Return the properties of the options' rules, which are known before anything is loaded. Errors: UserError for an
// unknown name.
WindowTraits window_traits(const DecodeOptions& options);
AcceptanceTraits acceptance_traits(const DecodeOptions& options);

// Makes the options' acceptance rule. Errors: UserError for an unknown name.
std::unique_ptr<AcceptanceRule> make_acceptance_rule(const DecodeOptions& options);

// Makes the parts of a method that drafts, around a drafter. Errors: UserError for an unknown name of a rule, or if the
// window rule asks a router or a record of accepted lengths and `models` has none.
DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter,
                      const GenerationModels& models = {});

// The properties of parts that decide whether they belong together.
struct PartTraits {
  DrafterTraits drafter;
  WindowTraits window;
  AcceptanceTraits acceptance;
};

// Reports each pair of parts that makes no sense; `temperature` 0 is greedy decoding.
void validate_parts(const PartTraits& parts, double temperature, Problems& problems);

// Returns the problem that the window rule asks a router and none was given.
Problem missing_router(const std::string& where);
// Returns the problem that a router is given for a drafter that is no model of its own.
Problem router_needs_model(const std::string& where, const std::string& drafter);

}  // namespace draftsmith::infer
