// BiLD against small programs written down again: Algorithm 1 of the paper (Kim et al.) and the authors' program.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/infer/acceptance/bild_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

struct Thresholds {
  double fallback;
  double rollback;
  int64_t limit;
  int64_t max_draft;
};

struct Written {
  Ids ids;
  int64_t large_runs = 0;
  int64_t rollbacks = 0;
  int64_t kept_own = 0;        // distant tokens that stayed because the large model would write them too
  bool eos_by_small = false;   // the small model wrote EOS
  bool eos_by_choice = false;  // a rollback put EOS in place of a token
};

class BildProgram {
 public:
  BildProgram(const Case& oracles, const Thresholds& thresholds) : oracles_(oracles), to_(thresholds) {}

 protected:
  static int64_t best(const std::vector<double>& p) { return std::max_element(p.begin(), p.end()) - p.begin(); }
  std::vector<double> large(const Ids& prefix) const { return oracles_.target(Ids{2}, prefix); }
  std::vector<double> small(const Ids& prefix) const { return oracles_.drafter(Ids{2}, prefix); }
  // Returns the large model's probabilities before token m.
  std::vector<double> large_at(size_t m) const {
    return large(Ids(text_.ids.begin(), text_.ids.begin() + static_cast<std::ptrdiff_t>(m)));
  }
  bool distant(size_t m) const { return -std::log(large_at(m)[static_cast<size_t>(text_.ids[m])]) > to_.rollback; }
  bool ended() const { return !text_.ids.empty() && (text_.ids.back() == kEos || std::ssize(text_.ids) == to_.limit); }
  // Lets the small model write until it falls back, has written max_draft tokens or has ended the text.
  void run_small() {
    for (int64_t i = 0; i < to_.max_draft && !ended(); ++i) {
      const auto p = small(text_.ids);
      if (*std::max_element(p.begin(), p.end()) < to_.fallback) return;
      text_.ids.push_back(best(p));
      text_.eos_by_small = text_.ids.back() == kEos;
    }
  }
  // Puts the large model's choice in place of token m and of all after it.
  void replace_from(size_t m) {
    const int64_t choice = best(large_at(m));
    text_.ids.resize(m);
    text_.ids.push_back(choice);
    ++text_.rollbacks;
    text_.eos_by_choice = choice == kEos;
  }

  const Case& oracles_;
  Thresholds to_;
  Written text_;
};

// Algorithm 1. It stops at an EOS, whoever wrote it, unless ends are verified.
class Algorithm1 : BildProgram {
 public:
  using BildProgram::BildProgram;

  Written write(bool effective, bool verify_end) {
    while (true) {
      const size_t first = text_.ids.size();  // pending token
      run_small();
      if (ended() && !verify_end) return text_;
      ++text_.large_runs;
      const bool rolled_back = roll_back(first, effective);
      if (!rolled_back && !ended()) text_.ids.push_back(best(large(text_.ids)));
      if (ended()) return text_;
    }
  }

 private:
  bool roll_back(size_t first, bool effective) {
    for (size_t m = first; m < text_.ids.size(); ++m) {
      if (!distant(m) || (effective && best(large_at(m)) == text_.ids[m])) continue;
      replace_from(m);
      return true;
    }
    return false;
  }
};

// The authors' program, ended at a replacement that is EOS. `settled_`: tokens that the large model's cache accounts
// for. A rollback does not advance it, so the next run compares the same tokens again.
class AuthorsProgram : BildProgram {
 public:
  using BildProgram::BildProgram;

  Written write() {
    while (true) {
      ++text_.large_runs;
      if (rolls_back()) {
        if (ended()) return text_;
        continue;
      }
      text_.ids.push_back(best(large(text_.ids)));
      settled_ = text_.ids.size();
      if (ended()) return text_;
      run_small();
      if (ended()) return text_;
    }
  }

 private:
  // Looks at the first distant token alone.
  bool rolls_back() {
    for (size_t m = settled_; m < text_.ids.size(); ++m) {
      if (!distant(m)) continue;
      if (best(large_at(m)) == text_.ids[m]) {
        ++text_.kept_own;
        return false;
      }
      replace_from(m);
      return true;
    }
    return false;
  }

  size_t settled_ = 0;
};

struct Coverage {
  int64_t rollbacks = 0;
  int64_t kept_own = 0;
  int64_t ends_by_small = 0;
  int64_t ends_by_choice = 0;

  void add(const Written& text) {
    rollbacks += text.rollbacks;
    kept_own += text.kept_own;
    ends_by_small += text.eos_by_small && text.ids.back() == kEos ? 1 : 0;
    ends_by_choice += text.eos_by_choice && text.ids.back() == kEos ? 1 : 0;
  }
};

// Calls check(oracles, thresholds) with random models, similar ones and different ones, and random thresholds.
template <class Check>
void for_random_scripts(uint64_t cases, const Check& check) {
  const CounterRandom random(5, 17);
  for (uint64_t i = 0; i < cases; ++i) {
    const auto large = random_oracle(6, 2 * i, 1.8);
    const Case oracles{large, mixture(large, random_oracle(6, 2 * i + 1, 1.8), random.uniform(5 * i)), 6};
    check(oracles, Thresholds{.fallback = 0.2 + 0.5 * random.uniform(5 * i + 1),
                              .rollback = 0.3 + 3 * random.uniform(5 * i + 2),
                              .limit = 1 + static_cast<int64_t>(24 * random.uniform(5 * i + 3)),
                              .max_draft = random.uniform(5 * i + 4) < 0.5 ? 10 : 3});
  }
}

DecodeOptions options_of(const Thresholds& thresholds, const std::string& rule) {
  DecodeOptions options = bild(thresholds.fallback, thresholds.rollback, thresholds.limit);
  options.max_draft = thresholds.max_draft;
  options.rollback_rule = rule;
  return options;
}

void expect_written(const GenerationResult& result, const Written& text) {
  EXPECT_EQ(result.ids, text.ids);
  EXPECT_EQ(result.stats.target_runs, text.large_runs);
  EXPECT_EQ(result.stats.fallbacks, text.large_runs);
  EXPECT_EQ(result.stats.rollbacks, text.rollbacks);
}

TEST(BildReference, EveryRuleIsAlgorithm1WithEndsFinalOrVerified) {
  for (const bool verify_end : {false, true}) {
    for (const bool effective : {false, true}) {
      Coverage coverage;
      for_random_scripts(150, [&](const Case& oracles, const Thresholds& thresholds) {
        DecodeOptions options = options_of(thresholds, effective ? "effective" : "literal");
        options.verify_end = verify_end;
        const Written text = Algorithm1(oracles, thresholds).write(effective, verify_end);
        const GenerationResult result = run(oracles, options);
        expect_written(result, text);
        if (verify_end) {
          EXPECT_EQ(result.stats.unverified, 0);
        }
        coverage.add(text);
      });
      EXPECT_GT(coverage.rollbacks, 20);
      EXPECT_GT(coverage.ends_by_small, 10);
      EXPECT_GT(coverage.ends_by_choice, 2);
    }
  }
}

TEST(BildReference, ReleasedCodeIsTheAuthorsProgram) {
  Coverage coverage;
  for_random_scripts(500, [&](const Case& oracles, const Thresholds& thresholds) {
    const Written text = AuthorsProgram(oracles, thresholds).write();
    expect_written(run(oracles, options_of(thresholds, "released_code")), text);
    coverage.add(text);
  });
  EXPECT_GT(coverage.rollbacks, 60);
  EXPECT_GT(coverage.kept_own, 20);
  EXPECT_GT(coverage.ends_by_small, 30);
  EXPECT_GT(coverage.ends_by_choice, 10);
}

// Large: 2@.9 3@.99 5@.9 4@.9; small: 2 2 2, then unsure.
const Case kCounterexample{scripted(6, {{2, 0.9}, {3, 0.99}, {5, 0.9}, {4, 0.9}}),
                           scripted(6, {{2, 0.8}, {2, 0.8}, {2, 0.8}, {5, 0.3}}), 6};

TEST(BildReference, AfterARollbackTheAuthorsLargeModelWritesTheNextTokenToo) {
  DecodeOptions options = bild(0.5, 5, 4);
  options.rollback_rule = "released_code";
  const GenerationResult result = run(kCounterexample, options);
  EXPECT_EQ(result.ids, (Ids{2, 3, 5, 4}));
  EXPECT_EQ(result.stats.target_runs, 4);
  EXPECT_EQ(result.stats.rollbacks, 1);
  EXPECT_EQ(AuthorsProgram(kCounterexample, {0.5, 5, 4, 10}).write().ids, result.ids);
}

TEST(BildReference, TheAuthorsProgramLooksAtTheFirstDistantTokenAlone) {
  // Beyond a threshold of .5 are the second token, the large model's own choice at .4, and the third, which it would
  // replace by 3.
  const Case oracles{scripted(4, {{2, 0.9}, {2, 0.4}, {3, 0.9}, {2, 0.9}}),
                     scripted(4, {{2, 0.9}, {2, 0.9}, {2, 0.9}, {3, 0.3}}), 4};
  DecodeOptions options = bild(0.5, 0.5, 4);
  EXPECT_EQ(run(oracles, options).ids, (Ids{2, 2, 3, 2}));
  options.rollback_rule = "released_code";
  const GenerationResult released = run(oracles, options);
  EXPECT_EQ(released.ids, (Ids{2, 2, 2, 2}));
  EXPECT_EQ(released.stats.rollbacks, 0);
}

}  // namespace
}  // namespace draftsmith::infer::testing
