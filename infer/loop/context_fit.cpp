#include "infer/loop/context_fit.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::infer {

const NamedValues<LongPrompts>& long_prompt_policies() {
  static const NamedValues<LongPrompts> kPolicies(
      "policy for long prompts",
      {{"error", LongPrompts::kError}, {"truncate-left", LongPrompts::kTruncateLeft}, {"skip", LongPrompts::kSkip}});
  return kPolicies;
}

PromptFit fit_prompt(int64_t prompt, int64_t wanted, const Context& context, LongPrompts policy,
                     const std::string& where) {
  if (context.tokens == 0) return {.wanted = wanted, .room = wanted};
  if (policy == LongPrompts::kTruncateLeft) {
    const int64_t half = std::max<int64_t>((context.tokens + 1) / 2, 1);
    const int64_t kept = std::min({prompt, std::max(context.tokens - wanted, half), context.tokens - 1});
    if (kept > 0) return {.dropped = prompt - kept, .wanted = wanted, .room = std::min(wanted, context.tokens - kept)};
  } else if (prompt < context.tokens) {
    return {.wanted = wanted, .room = std::min(wanted, context.tokens - prompt)};
  } else if (policy == LongPrompts::kSkip) {
    return {.wanted = wanted, .skipped = true};
  }
  throw UserError({.where = where,
                   .what = "the prompt leaves no room for a new token in the context of " + context.owner,
                   .expected = fmt::format("fewer than {} tokens", context.tokens),
                   .found = fmt::format("{} tokens", prompt),
                   .hint = "shorten the prompt, or choose --long-prompts truncate-left or skip" +
                           (context.lift.empty() ? "" : "; " + context.lift)});
}

}  // namespace draftsmith::infer
