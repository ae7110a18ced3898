// Decoding with PPD's loop itself, beneath the generator, so that tests see its decode state.
#pragma once

#include <span>
#include <vector>

#include "infer/inside/ppd.h"

namespace draftsmith::infer::testing {

struct PpdOutput {
  std::vector<std::vector<int64_t>> ids;  // new tokens of each source
  std::vector<DecodeStats> stats;
  std::vector<int64_t> layer_runs;  // of each batch, as its state counted them after the prompts
  std::vector<std::unique_ptr<model::DecodeState>> states;  // of each batch, with the rows that left it last
};

struct PpdDecoding {
  PpdSettings ppd;
  const model::Exits* exits = nullptr;
  int64_t batch = 1;
  int64_t limit = 14;
  DecodeSettings settings = {.warping = {.temperature = 0}, .processors = {}, .eos = {1}};
};

PpdOutput run_ppd(model::TransformerModel& model, std::span<const std::vector<int64_t>> sources,
                  const PpdDecoding& decoding);
// The same by decode_plainly; decoding.ppd is not read.
PpdOutput run_plainly(model::TransformerModel& model, std::span<const std::vector<int64_t>> sources,
                      const PpdDecoding& decoding);

// What a sequence's runs should have been, from one teacher-forced pass over it.
struct ForcedMatches {
  int64_t predictions = 0;
  int64_t matches = 0;
  int64_t branches = 0;  // candidates that do not end the row, of all tokens but the limit's last
};
ForcedMatches forced_matches(model::TransformerModel& model, const std::vector<int64_t>& source,
                             const std::vector<int64_t>& ids, const PpdDecoding& decoding);

}  // namespace draftsmith::infer::testing
