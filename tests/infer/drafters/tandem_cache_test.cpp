// The cache of a Tandem secondary equals one that is computed from scratch, in every draft and after every round.
#include <gtest/gtest.h>

#include "infer/drafters/tandem_drafter.h"
#include "infer/parts.h"
#include "tests/support/batches.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using Ids = std::vector<int64_t>;

// Everything the cache says, once more from scratch, row by row: projected representations of what is committed, then
// the secondary's own steps.
class CheckedDrafter : public TandemDrafter {
 public:
  CheckedDrafter(const TandemPair& pair, std::vector<Ids> sources)
      : TandemDrafter(*pair.secondary), pair_(pair), sources_(std::move(sources)) {}

  at::Tensor next_logits(const DraftRequest& request) override {
    at::Tensor logits = TandemDrafter::next_logits(request);
    for (size_t b = 0; b < request.rows.size(); ++b) {
      if (request.active[b] == 0) continue;
      auto state = scratch(request.rows[b]);
      Ids own{request.rows[b].tokens.back()};
      for (const at::Tensor& drafted : request.drafted) own.push_back(drafted[static_cast<int64_t>(b)].item<int64_t>());
      const auto expected = pair_.secondary->step(model::step_input({own}), *state).logits[0][-1];
      EXPECT_LT(difference(logits[static_cast<int64_t>(b)], expected), 1e-10);
      compare(*state, static_cast<int64_t>(b));
      ++logits_checked;
    }
    return logits;
  }

  void observe(const DraftObservation& observation) override {
    TandemDrafter::observe(observation);
    for (size_t b = 0; b < observation.rows.size(); ++b) {
      if (observation.rows[b].finished) continue;
      ASSERT_EQ(state().length(static_cast<int64_t>(b)), observation.rows[b].length() - 1);
      compare(*scratch(observation.rows[b]), static_cast<int64_t>(b));
      ++caches_checked;
    }
  }

  static int64_t logits_checked;
  static int64_t caches_checked;

 private:
  // A state of one row in which the primary has processed everything but the last committed token.
  std::unique_ptr<model::DecodeState> scratch(const Row& row) {
    const int64_t processed = row.length() - 1;
    const bool encodes = pair_.primary->info().encoder_decoder;
    model::EncoderStates encoder;
    if (encodes) {
      const Ids& source = sources_[row.line];
      encoder = pair_.primary->encode(
          {at::tensor(source.empty() ? Ids{0} : source, at::kLong).view({1, -1}), {std::ssize(source)}});
    }
    auto primary = encodes ? pair_.primary->begin(encoder, 64) : pair_.primary->begin(1, 64);
    auto state =
        encodes ? pair_.secondary->begin(pair_.secondary->project_encoder(encoder), 64) : pair_.secondary->begin(1, 64);
    if (processed == 0) return state;
    model::StepInput input = model::step_input({{row.tokens.begin(), row.tokens.end() - 1}});
    input.hidden_layers = pair_.secondary->config().tandem.layer_map;
    const auto hidden = pair_.primary->step(input, *primary).hidden;
    auto& own = model::transformer_state(*state);
    pair_.secondary->write_primary(hidden, own.append(std::vector<int64_t>{processed}, processed), own);
    return state;
  }

  void compare(model::DecodeState& expected, int64_t row) const {
    auto& other = model::transformer_state(expected);
    const int64_t length = other.length(0);
    ASSERT_EQ(state().length(row), length);
    for (int64_t layer = 0; layer < pair_.secondary->config().decoder_layers && length > 0; ++layer) {
      const auto own_keys = state().keys(layer)[row].narrow(1, 0, length);
      const auto own_values = state().values(layer)[row].narrow(1, 0, length);
      EXPECT_LT(difference(own_keys, other.keys(layer)[0].narrow(1, 0, length)), 1e-10);
      EXPECT_LT(difference(own_values, other.values(layer)[0].narrow(1, 0, length)), 1e-10);
    }
  }

  const TandemPair& pair_;
  std::vector<Ids> sources_;
};

int64_t CheckedDrafter::logits_checked = 0;
int64_t CheckedDrafter::caches_checked = 0;

TEST(Tandem, CachesEqualRecomputationAfterDraftsRollbacksAndCommits) {
  CheckedDrafter::logits_checked = 0;
  CheckedDrafter::caches_checked = 0;
  for (const Kind kind : {Kind::kEncoderDecoder, Kind::kDecoderOnly}) {
    for (const bool noisy : {true, false}) {
      const TandemPair pair = noisy ? identity_pair(kind, 0.1) : random_pair(kind);
      const auto sources = tandem_sources(kind);
      for (const bool standalone : {true, false}) {
        for (const bool free_token : {true, false}) {
          DecodeOptions options = tandem_options(standalone ? "tandem" : "tandem-speed", 3, 4);
          options.free_token = free_token;
          options.num_samples = 2;
          options.temperature = 0.7;
          options.max_new_tokens = 9;
          DraftParts parts = make_parts(options, std::make_unique<CheckedDrafter>(pair, sources));
          GenerationModels models;
          models.target = pair.primary.get();
          Generator(models, options, std::move(parts)).generate(sources);
        }
      }
    }
  }
  EXPECT_GT(CheckedDrafter::logits_checked, 300);
  EXPECT_GT(CheckedDrafter::caches_checked, 100);
}

}  // namespace
}  // namespace draftsmith::infer::testing
