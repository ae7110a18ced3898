// The parts of draft-then-verify methods: the registry of names, and the one validator that says which combinations
// make no sense and why.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infer/decode_options.h"
#include "infer/loop/draft_parts.h"

namespace draftsmith::model {
class RouterPredictor;  // model/kinds/router.h
}

namespace draftsmith::infer {

class AcceptedLengths;  // infer/windows/oracle.h

// What some window rules need besides options. Must outlive the rules.
struct WindowInputs {
  const model::RouterPredictor* router = nullptr;     // of router
  const AcceptedLengths* accepted_lengths = nullptr;  // of oracle
};

// Names of the rules that exist.
std::vector<std::string> window_rule_names();
std::vector<std::string> acceptance_rule_names();

// The rule of that name with the options' parameters. Throws UserError that names what is known, or what the rule needs
// and was not given.
std::unique_ptr<WindowRule> make_window_rule(const std::string& name, const DecodeOptions& options,
                                             const WindowInputs& inputs = {});
std::unique_ptr<AcceptanceRule> make_acceptance_rule(const std::string& name, const DecodeOptions& options);

// What the options' acceptance rule is like. Errors: UserError for an unknown name.
AcceptanceTraits acceptance_traits(const DecodeOptions& options);

// The parts of a method that drafts, around a drafter.
DraftParts make_parts(const DecodeOptions& options, std::unique_ptr<Drafter> drafter, const WindowInputs& inputs = {});

// Adds a problem where a window that replays an earlier pass (oracle) would fall out of step with it: `where` is what
// is wrong then.
void check_replay(const AcceptanceTraits& acceptance, const std::string& where, Problems& problems);

// Adds a problem for each pair of parts that makes no sense; `temperature` 0 is greedy decoding.
void validate_parts(const DraftParts& parts, double temperature, Problems& problems);

}  // namespace draftsmith::infer
