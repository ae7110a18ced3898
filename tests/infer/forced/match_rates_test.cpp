// Match rates: against a naive loop over decoding steps, on models whose early layers are known.
#include "infer/forced/match_rates.h"

#include <map>
#include <tuple>

#include <gmock/gmock.h>

#include "base/random_tensors.h"
#include "infer/loop/rows.h"
#include "model/models/exits.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

using Ids = std::vector<int64_t>;
using Model = std::unique_ptr<model::TransformerModel>;

// Matches and tokens by (layer, k, trained, positions).
using Cells = std::map<std::tuple<int64_t, int64_t, bool, std::string>, std::pair<int64_t, int64_t>>;

GenerationModels rated_models(model::TransformerModel& target, const model::Exits* exits = nullptr) {
  return {.target = &target, .exits = exits};
}

// A full head of random weights at layer 2 and an exit like the model's own at layer 1.
model::Exits exits_for(const model::TransformerModel& target) {
  const auto& config = target.config();
  const model::ExitConfig shapes{{{.layer = 1}, {.layer = 2, .head = model::ExitHead::kFull}}, "", "", ""};
  return {shapes,
          config,
          {{"exit.2.head.weight", normal_tensor({config.vocabulary, config.width}, 1, 5, "head", at::kDouble)}}};
}

// One position at a time, row by row: the label's place among all logits, sorted.
Cells naive(model::TransformerModel& target, const model::Exits& exits, const std::vector<Ids>& outputs,
            const MatchRateOptions& options) {
  Cells cells;
  const auto prompts = exit_sources(target);
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<Row> rows(1);
    rows[0].tokens = target.info().encoder_decoder ? Ids{target.info().decoder_start} : prompts[i];
    model::EncoderStates encoder;
    if (target.info().encoder_decoder) {
      const auto length = std::ssize(prompts[i]);
      encoder = target.encode({to_device(prompts[i], {1, length}, at::kCPU), {length}});
    }
    const auto state = prefill(target, encoder, rows, {64, 1}).state;
    int64_t last = rows[0].tokens.back();
    for (size_t t = 0; t < outputs[i].size(); ++t) {
      model::StepInput input = model::step_input({{last}}, model::Logits::kNone);
      input.hidden_layers = {1, 2};
      const auto hidden = target.step(input, *state).hidden;
      last = outputs[i][t];
      const auto count = [&](int64_t layer, bool trained, const at::Tensor& logits) {
        const at::Tensor order = std::get<1>(logits.flatten().sort(true, 0, true));
        const int64_t place = order.eq(last).nonzero().item<int64_t>();
        const auto first = static_cast<int64_t>(t) / options.bin * options.bin + 1;
        const bool beyond = first > options.bin * options.bins;
        const std::string bin = beyond ? std::to_string(options.bin * options.bins + 1) + "-"
                                       : std::to_string(first) + "-" + std::to_string(first + options.bin - 1);
        for (const int64_t k : options.candidates) {
          for (const std::string& positions : {bin, std::string("total")}) {
            auto& [matches, tokens] = cells[{layer, k, trained, positions}];
            matches += place < k ? 1 : 0;
            ++tokens;
          }
        }
      };
      count(1, false, target.exit_head(hidden[0]));
      count(2, false, target.exit_head(hidden[1]));
      count(2, true, exits.logits(target, 2, hidden[1]));
    }
  }
  return cells;
}

TEST(MatchRates, EqualANaiveLoopOverDecodingSteps) {
  std::vector<Model> all;
  for (const auto& config : model::tiny_families()) all.push_back(model::varied_model(config, 3));
  for (const Kind kind : kKinds) all.push_back(tandem_primary_model(kind));
  for (const Model& target : all) {
    target->requires_grad(false);
    const model::Exits exits = exits_for(*target);
    for (const int64_t bins : {8, 3}) {
      MatchRateOptions options{.layers = {1, 2}, .bins = bins, .max_new_tokens = 18};
      const auto prompts = exit_sources(*target);
      const auto outputs = ids_of(Generator(rated_models(*target), {.max_new_tokens = 18}).generate(prompts));
      Cells expected = naive(*target, exits, outputs, options);
      for (const int64_t batch : {1, 3}) {
        options.batch_size = batch;
        Cells found;
        for (const auto& rate : count_matches(rated_models(*target, &exits), "greedy", prompts, outputs, options)) {
          found[{rate.layer, rate.k, rate.trained, rate.positions}] = {rate.matches, rate.tokens};
        }
        std::erase_if(found, [](const auto& cell) { return cell.second.second == 0; });
        EXPECT_EQ(found, expected) << target->info().name;
      }
    }
  }
}

TEST(MatchRates, LayersBelowOnesThatChangeNothingSayWhatTheLastOneSays) {
  for (const Kind kind : kKinds) {
    const Model target = tandem_primary_model(kind);
    for (const auto& [name, value] : target->parameters()) {
      const bool adds = name.ends_with("attention.output.weight") || name.ends_with("feed_forward.down.weight");
      if ((name.starts_with("decoder.1") || name.starts_with("decoder.2")) && adds) value.zero_();
    }
    const MatchRateOptions options{.layers = {1, 2, 3}, .candidates = {1, 3}, .max_new_tokens = 18};
    for (const MatchRate& rate : match_rates(rated_models(*target), exit_sources(*target), options)) {
      // The 3 most likely tokens are those that top-k draws from.
      if (rate.decoding == "greedy" || (rate.decoding == "top-k" && rate.k == 3)) {
        EXPECT_EQ(rate.matches, rate.tokens) << rate.decoding << " " << rate.layer << " " << rate.positions;
      } else if (rate.k == 1 && rate.positions == "total") {
        EXPECT_LT(rate.rate(), 1) << rate.decoding;
      }
    }
  }
}

TEST(MatchRates, EarlyPredictionsAreProcessedAsFinalOnesAre) {
  const Model target = tandem_primary_model(Kind::kEncoderDecoder);
  GenerationModels models = rated_models(*target);
  models.generation.emplace();
  models.generation->eos_ids = {1};
  models.generation->forced_eos = {1};
  models.generation->min_new_tokens = 4;
  const MatchRateOptions options{
      .decodings = {{"greedy"}}, .candidates = {1}, .bin = 1, .bins = 5, .max_new_tokens = 5};
  const auto rates = match_rates(models, exit_sources(*target), options);
  int64_t forced = 0;
  for (const MatchRate& rate : rates) {
    if (rate.positions != "5") continue;
    EXPECT_GT(rate.tokens, 0);
    EXPECT_EQ(rate.matches, rate.tokens);
    ++forced;
  }
  EXPECT_EQ(forced, 2);
}

std::string rate_problems(const MatchRateOptions& options) {
  const Model target = tandem_primary_model(Kind::kDecoderOnly);
  Problems problems;
  check_match_rates(options, target->info(), "match rates", problems);
  return error_of([&] { problems.throw_if_any(); });
}

TEST(MatchRates, WhatIsBeyondTheModelIsNamed) {
  EXPECT_THAT(rate_problems({.layers = {1, 4}}), HasSubstr("1..3, the decoder's layers"));
  EXPECT_THAT(rate_problems({.candidates = {1, 25}}), HasSubstr("1..24"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
