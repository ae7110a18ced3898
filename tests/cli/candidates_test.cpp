// Candidates of `draftsmith new`: what is said of costs that are given.
#include "cli/candidates.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::cli {
namespace {

constexpr CandidateKind kLayers{.name = "layers"}, kOther{.name = "other"};

// Verifying costs as much as one token, so that a window pays if alpha > c (corollary 3.9 of Leviathan et al.).
Candidate costing(const CandidateKind& kind, double c, double alpha) {
  Candidate made{.kind = &kind, .layers = 2, .alpha = alpha};
  made.costs.target = std::vector<double>(9, 0.01);
  made.costs.draft = 0.01 * c;
  made.refusals = {{"gguf", "of another family"}, {"hf", ""}};
  return made;
}

TEST(Candidates, PayFromTheCostRatioOn) {
  const Candidate pays = costing(kLayers, 0.3, 0.8);
  EXPECT_NEAR(pays.pays_from().value(), 0.3, 1e-6);
  EXPECT_NEAR(pays.score(), pays.best(0.8).speedup, 1e-12);
  EXPECT_GT(pays.score(), 1);
  const Candidate assumed_too_low = costing(kLayers, 0.3, 0.2);
  EXPECT_NEAR(assumed_too_low.score(), 0.9, 1e-6);
  EXPECT_EQ(assumed_too_low.window(), 1) << "what pays first";
  const Candidate never = costing(kLayers, 1.5, 0.9);
  EXPECT_FALSE(never.pays_from());
  EXPECT_LT(never.score(), assumed_too_low.score());
  EXPECT_EQ(never.window(), 0);
}

TEST(Candidates, ForGgufThoseThatItHoldsComeFirstIfTheyAreWorthIt) {
  for (const double alpha : {0.3, 0.8}) {  // 0.3: nothing to gain by a drafter of 0.3 steps
    Candidate held = costing(kLayers, 0.3, alpha);
    held.refusals["gguf"] = "";
    const Candidate faster = costing(kOther, 0.05, alpha);
    EXPECT_GT(faster.rank(false), held.rank(false));
    EXPECT_EQ(held.rank(true) > faster.rank(true), alpha == 0.8);
  }
}

TEST(Candidates, TheTextSaysWhatTheChoiceRestsOn) {
  std::vector<Candidate> all = {costing(kLayers, 0.55, 0.3), costing(kOther, 0.1, 0.3), costing(kLayers, 1.5, 0.3)};
  all.back().layers = 8;
  all.push_back({.costs = all[1].costs});
  const std::string text = candidates_text(all, all.data());
  EXPECT_THAT(text, AllOf(HasSubstr("layers, 2 "), HasSubstr("never"), HasSubstr("prompt look-up"), HasSubstr("*")));
  EXPECT_THAT(text, AllOf(HasSubstr("Chosen: layers, 2. It pays from alpha 0.55 on, and 0.30 is assumed: theory"),
                          HasSubstr("Theory\n  prefers other, 2 (--kind other)."),
                          HasSubstr("Export: not gguf: of another family; hf.")));
  EXPECT_LE(widest_line(text), 98U) << text;
  EXPECT_THAT(candidates_text(all), AllOf(Not(HasSubstr("Chosen")), Not(HasSubstr("min"))));
}

}  // namespace
}  // namespace draftsmith::cli
