#include "infer/forced/log_probabilities.h"

#include <cmath>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

TEST(LogProbabilities, AreThoseOfTheTargetInEveryMethod) {
  const OracleFunction target = random_oracle(6, 3);
  for (const bool encoder_decoder : {true, false}) {
    auto info = oracle_info(6);
    info.encoder_decoder = encoder_decoder;
    OracleModel large(info, target);
    OracleModel small(info, random_oracle(6, 4));
    const std::vector<Ids> sources = {{2}, {3, 4, 2}, {5, 5}};
    for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
      DecodeOptions options;
      options.method = method;
      if (options.samples_by_default()) options.temperature = 0.7;
      options.top_k = 3;
      options.num_samples = 2;
      options.batch_size = 2;
      options.max_new_tokens = 7;
      options.log_probs = true;
      Generator generator({.target = &large, .drafter = as_drafter(small), .generation = {}}, options);
      const auto results = generator.generate(sources);
      for (size_t i = 0; i < results.size(); ++i) {
        const Ids& source = sources[i / 2];
        Ids prefix = encoder_decoder ? Ids{} : source;
        ASSERT_EQ(results[i].log_probabilities.size(), results[i].ids.size());
        for (size_t t = 0; t < results[i].ids.size(); ++t) {
          const auto p = target(encoder_decoder ? source : Ids{}, prefix);
          const int64_t token = results[i].ids[t];
          EXPECT_NEAR(results[i].log_probabilities[t], std::log(p[static_cast<size_t>(token)]), 1e-9) << method;
          prefix.push_back(token);
        }
      }
      options.log_probs = false;
      const auto plain =
          Generator({.target = &large, .drafter = as_drafter(small), .generation = {}}, options).generate(sources);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(plain[i].ids, results[i].ids);
        EXPECT_TRUE(plain[i].log_probabilities.empty());
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
