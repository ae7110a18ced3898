// Tokenizers of BLEU against sacreBLEU, token by token, on awkward lines.

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "metrics/bleu.h"
#include "metrics/bleu_tokenizers.h"
#include "tests/metrics/reference_run.h"

namespace draftsmith::metrics {
namespace {

using Lines = std::vector<std::string>;

// What tools/reference_metrics.py says of tokens, run once for all tests.
struct Expected {
  std::filesystem::path folder;
  nlohmann::json json;
  std::string why;  // there is nothing

  static const Expected& get() {
    static const Expected kExpected = [] {
      Expected result;
      if (const auto folder = run_reference("tokens", result.why)) {
        result.folder = *folder;
        result.json = load_json(*folder / "tokens.json");
      }
      return result;
    }();
    return kExpected;
  }
  Expected() = default;
  Expected(const Expected&) = delete;
  Expected(Expected&&) = default;
  Expected& operator=(const Expected&) = delete;
  Expected& operator=(Expected&&) = delete;
  ~Expected() {
    if (!folder.empty()) std::filesystem::remove_all(folder);
  }
};

template <typename Split>
void compare_tokens(const Lines& lines, const Lines& expected, const Split& split) {
  ASSERT_EQ(lines.size(), expected.size());
  ASSERT_GT(lines.size(), 900U);
  int wrong = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string tokens = fmt::format("{}", fmt::join(split(lines[i]), " "));
    if (tokens == expected[i]) continue;
    if (++wrong <= 5) ADD_FAILURE() << lines[i] << "\nis      " << tokens << "\nexpected " << expected[i];
  }
  EXPECT_EQ(wrong, 0);
}

void compare_bleu_tokenizer(const std::string& name) {
  SCOPED_TRACE(name);
  const auto& json = Expected::get().json;
  const auto tokenizer = make_bleu_tokenizer(name);
  const auto& expected = json.at("bleu").at(name);
  compare_tokens(json.at("lines"), expected.at("tokens"),
                 [&](const std::string& line) { return tokenizer->tokens(line); });
  const std::string signature = expected.at("signature");
  EXPECT_EQ(bleu_signature({{"a"}}, *tokenizer),
            signature.substr(0, signature.rfind(':') + 1) + std::string(kMetricsVersion));
}

TEST(TokensAgainstPeers, RulesEqualSacrebleuOnEveryToken) {
  if (Expected::get().folder.empty()) GTEST_SKIP() << Expected::get().why;
  for (const char* name : {"13a", "none", "char", "intl", "zh"}) compare_bleu_tokenizer(name);
}

}  // namespace
}  // namespace draftsmith::metrics
