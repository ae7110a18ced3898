// Fits prompts into the context of decoder-only models: handles prompts that are too long, and says how many new tokens
// have room.
#pragma once

#include <cstdint>
#include <string>

#include "base/registry.h"

namespace draftsmith::infer {

// Treatment of a prompt that leaves no room: it
enum class LongPrompts {
  kError,         // is an error that names the remedy
  kTruncateLeft,  // drops the prompt's beginning so that the wanted tokens fit behind it
  kSkip,          // gives empty results
};

// Returns their names in options.
const NamedValues<LongPrompts>& long_prompt_policies();

struct Context {
  int64_t tokens = 0;  // prompt and new tokens together; 0: no limit
  std::string owner;   // the limit's owner, for messages: "the model X"
  std::string lift{};  // the option that lifts the limit, for messages; empty: none does
};

struct PromptFit {
  int64_t dropped = 0;  // prompt tokens that are left out
  int64_t wanted = 0;   // new tokens asked for
  int64_t room = 0;     // new tokens that fit, at most `wanted`
  bool skipped = false;
};

// Returns how a prompt of `prompt` tokens fits with `wanted` >= 1 new tokens. A prompt that fills the context leaves no
// room. kTruncateLeft shortens the prompt to make room for the wanted tokens, but to no less than half the context;
// then fewer new tokens fit. Errors: UserError at `where` for kError and a prompt that leaves no room.
PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where);

}  // namespace draftsmith::infer
