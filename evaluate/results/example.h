// Outputs of some lines by their tokens' origins, for reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::evaluate {

// Text of a token. origin: "drafted", "unverified", "target" or "rejected" (infer::TokenOrigin).
struct TokenText {
  std::string text;
  std::string origin;
};

// Output of a setting, with the tokens that were taken back where they were written.
struct ExampleOutput {
  std::string setting;
  std::vector<TokenText> tokens;
};

struct Example {
  int64_t line = 0;  // of the task, counted from 0
  std::string source;
  std::string reference;  // empty: none
  std::string greedy;     // output of the task's baseline
  std::vector<ExampleOutput> outputs;
};

}  // namespace draftsmith::evaluate
