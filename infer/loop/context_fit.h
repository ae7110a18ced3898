// What happens to a prompt that a decoder-only model's context cannot hold, and how many tokens fit after one that it
// can.
#pragma once

#include <cstdint>
#include <string>

namespace draftsmith::infer {

enum class LongPrompts {
  kError,         // refused, with the remedy
  kTruncateLeft,  // its beginning is dropped so that the wanted tokens fit behind it
  kSkip,          // its results are empty
};

// Of the option `long_prompts`: error, truncate-left, skip.
LongPrompts parse_long_prompts(const std::string& name);

struct Context {
  int64_t tokens = 0;  // prompt and new tokens together; 0: no limit
  std::string owner;   // what limits it, for messages: "the model X"
  std::string lift{};  // how the user lifts the limit, for messages; empty: in no way
};

struct PromptFit {
  int64_t dropped = 0;  // prompt tokens that are left out
  int64_t wanted = 0;   // new tokens
  int64_t room = 0;     // new tokens that fit: the wanted ones, or fewer
  bool skipped = false;
};

// How a prompt of `prompt` tokens fits with `wanted` >= 1 new ones. A prompt leaves no room when it fills the context.
// kTruncateLeft keeps what leaves room for the wanted tokens, but at least half the context: more wanted tokens than
// that are cut, not the prompt. kError: UserError, `where` naming the input.
PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where);

}  // namespace draftsmith::infer
