// Rows that fail and rows that are judged: logits that are NaN or positive infinity end their own row with an error, in
// every method and number type, and the other rows of the batch keep their output; a GPU's transfer brings a judgement
// to the host as it is.
#include <limits>

#include <gmock/gmock.h>

#include "base/error.h"
#include "infer/loop/decode_loop.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};
const std::vector<double> kSound = {0.5, 0, 0.3, 0.2};

// kSound everywhere, but `broken` for the source {3} after two tokens.
OracleFunction broken_oracle(std::vector<double> broken) {
  return [broken](std::span<const int64_t> source, std::span<const int64_t> prefix) {
    return source[0] == 3 && prefix.size() >= 2 ? broken : kSound;
  };
}

// Expects an error of the line with index `failed` alone, and the other lines as in `sound`.
void expect_failed(const std::vector<GenerationResult>& results, const std::vector<GenerationResult>& sound,
                   size_t failed, const std::string& owner) {
  ASSERT_EQ(results.size(), sound.size());
  for (size_t line = 0; line < results.size(); ++line) {
    ASSERT_EQ(results[line].error.has_value(), line == failed) << "line " << line;
    EXPECT_EQ(results[line].ids, line == failed ? Ids{} : sound[line].ids) << "line " << line;
  }
  EXPECT_THAT(results[failed].error->where, HasSubstr("input " + std::to_string(failed + 1) + ", new token"));
  EXPECT_THAT(results[failed].error->what, HasSubstr(owner));
}

TEST(NotFinite, LogitsFailTheirOwnRowInEveryMethodAndType) {
  const std::vector<Ids> sources = {{2}, {3}, {2, 2}};
  for (const auto& broken : {std::vector<double>(4, kNan), {0.5, 0, kInf, 0.2}}) {
    for (const at::ScalarType type : kTypes) {
      for (const char* method : {"greedy", "sample", "speculative", "assisted", "bild"}) {
        for (const double temperature : {0.0, 1.0}) {
          DecodeOptions options{.method = method};
          if (options.method_info().sampling != Sampling::kNever) options.temperature = temperature;
          options.verify_end = true;  // otherwise the target does not see how a draft ends
          options.batch_size = 3;
          options.max_new_tokens = 9;
          const Case sound{constant_oracle(kSound), constant_oracle(kSound), 4, type};
          const auto expected = decode(sound, options, sources);
          Case damaged = sound;
          damaged.target = broken_oracle(broken);
          SCOPED_TRACE(std::string(method) + " " + at::toString(type) + " T " + std::to_string(temperature));
          expect_failed(decode(damaged, options, sources), expected, 1, "target");
          if (!options.drafts()) continue;
          damaged = sound;
          damaged.drafter = broken_oracle(broken);
          expect_failed(decode(damaged, options, sources), expected, 1, "drafter");
        }
      }
    }
  }
}

// All rows of a batch may fail, and listeners hear once that each ended.
TEST(NotFinite, AllRowsOfABatchMayFail) {
  for (const char* method : {"greedy", "assisted"}) {
    OraclePair oracles({broken_oracle({0.5, 0, 0.3, kNan}), constant_oracle(kSound)});
    DecodeOptions options{.method = method, .max_new_tokens = 9, .batch_size = 2};
    std::vector<int> ends(2, 0);
    const auto results = Generator(oracles.models(), options)
                             .generate(std::vector<Ids>{{3}, {3, 2}}, 0, {},
                                       [&](size_t output, auto, bool finished) { ends[output] += finished ? 1 : 0; });
    EXPECT_TRUE(results[0].error && results[1].error) << method;
    EXPECT_EQ(ends, (std::vector<int>{1, 1})) << method;
  }
}

// Returns an id that neither the sources nor the outputs have.
int64_t unused_id(const std::vector<Ids>& sources, const std::vector<GenerationResult>& outputs, int64_t vocabulary) {
  for (int64_t id = vocabulary - 1; id > 1; --id) {
    const auto has = [&](const Ids& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
    const bool used = std::any_of(sources.begin(), sources.end(), has) ||
                      std::any_of(outputs.begin(), outputs.end(), [&](const auto& output) { return has(output.ids); });
    if (!used) return id;
  }
  ADD_FAILURE() << "every id is used";
  return 0;
}

// Replaces the embedding of a token by NaN.
void damage(model::TransformerModel& model, int64_t id) {
  at::Tensor embedding = model.parameters().at("embedding.weight");
  embedding.detach().select(0, id).fill_(kNan);
}

TEST(NotFinite, LogitsFailTheirOwnRowInMethodsInsideTheModel) {
  for (const char* method : {"greedy", "calm", "ppd", "early-exit"}) {
    for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
      const auto model = exit_model({.type = type});
      std::vector<Ids> sources = exit_sources(*model);
      sources.resize(3);
      DecodeOptions options = exit_options(method, 3);
      if (options.method == "early-exit") options.exit_layer = 2;
      const auto sound = Generator(exit_models(*model), options).generate(sources);
      const int64_t id = unused_id(sources, sound, kExitVocabulary);
      sources[1] = {id, 3};
      damage(*model, id);
      SCOPED_TRACE(std::string(method) + " " + at::toString(type));
      expect_failed(Generator(exit_models(*model), options).generate(sources), sound, 1, "logits");
    }
  }
}

TEST(NotFinite, LogitsFailTheirOwnRowOfTandems) {
  for (const char* method : {"tandem", "tandem-speed"}) {
    const TandemPair pair = identity_pair(Kind::kEncoderDecoder, kNoise);
    std::vector<Ids> sources = tandem_sources(Kind::kEncoderDecoder);
    sources.resize(3);
    const DecodeOptions options = tandem_options(method, 4, 3);
    const auto sound = Generator(pair.models(), options).generate(sources);
    const int64_t id = unused_id(sources, sound, 24);
    sources[1] = {id, 3};
    damage(*pair.primary, id);
    SCOPED_TRACE(method);
    expect_failed(Generator(pair.models(), options).generate(sources), sound, 1, "logits");
  }
}

const Ids kVerdictEnds = {kEos};

// Three rows that drafted 3, 1 and 0 tokens.
Draft unread_draft() {
  Draft draft;
  for (const Ids& step : {Ids{2, 5, 9}, Ids{kEos, 9, 9}, Ids{4, 9, 9}}) draft.unread.push_back(at::tensor(step));
  draft.tokens = draft.unread;
  draft.counts = {3, 1, 0};
  draft.on_host.resize(3);
  draft.read = false;
  return draft;
}

TEST(Transfer, GivesTheSameJudgementAndFillsTheDraftUpToItsFirstEos) {
  for (const bool read : {false, true}) {
    for (const bool measured : {false, true}) {
      Draft draft = unread_draft();
      const at::Tensor tokens = at::stack(draft.tokens, 1);
      Judgement judgement{.accepted = at::tensor(Ids{3, 0, 0}), .next = at::tensor(Ids{6, 8, 7})};
      if (measured) judgement.overlap = at::arange(9, at::kDouble).view({3, 3}).mul(0.1);
      if (read) draft.read_tokens(kVerdictEnds);
      const Judgement copy = transfer(judgement, tokens, kVerdictEnds, draft);
      EXPECT_TRUE(draft.read);
      EXPECT_THAT(draft.on_host, ElementsAre(Ids{2, kEos}, Ids{5}, Ids{}));
      EXPECT_TRUE(copy.accepted.equal(judgement.accepted));
      EXPECT_TRUE(copy.next.equal(judgement.next));
      ASSERT_EQ(copy.overlap.defined(), measured);
      EXPECT_TRUE(!measured || copy.overlap.equal(judgement.overlap));
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
