#include "tests/infer/inside/ppd_fixtures.h"

#include <algorithm>
#include <set>

#include "infer/loop/plain_loop.h"
#include "infer/loop/prefill.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer::testing {
namespace {

using Ids = std::vector<int64_t>;

model::TokenBatch padded(std::span<const Ids> lists) {
  model::TokenBatch batch;
  size_t longest = 1;
  for (const Ids& list : lists) longest = std::max(longest, list.size());
  batch.tokens = at::zeros({std::ssize(lists), static_cast<int64_t>(longest)}, at::kLong);
  for (size_t b = 0; b < lists.size(); ++b) {
    for (size_t t = 0; t < lists[b].size(); ++t) {
      batch.tokens[static_cast<int64_t>(b)][static_cast<int64_t>(t)] = lists[b][t];
    }
    batch.lengths.push_back(std::ssize(lists[b]));
  }
  return batch;
}

Ids prefix_of(const model::TransformerModel& model, const Ids& source) {
  return model.info().encoder_decoder ? Ids{model.info().decoder_start} : source;
}

RowBatch make_batch(model::TransformerModel& model, std::span<const Ids> sources, int64_t limit) {
  RowBatch batch;
  int64_t capacity = 0;
  for (const Ids& source : sources) {
    Row row;
    row.output = row.line = batch.rows.size();
    row.tokens = prefix_of(model, source);
    row.prefix = row.length();
    row.limit = limit;
    capacity = std::max(capacity, row.prefix + limit);
    batch.rows.push_back(std::move(row));
  }
  model::TokenBatch encoded = padded(sources);
  encoded.tokens = encoded.tokens.to(model.info().device);
  const bool encodes = model.info().encoder_decoder;
  batch.state = begin_state(model, encodes ? model.encode(encoded) : model::EncoderStates{}, batch.rows, {capacity, 1});
  return batch;
}

int64_t layer_runs(const model::DecodeState& state) {
  return dynamic_cast<const model::DecoderState&>(state).layer_runs();
}

template <class Decode>
PpdOutput run(model::TransformerModel& model, std::span<const Ids> sources, const PpdDecoding& decoding,
              const Decode& decode) {
  const model::DecodingGuard guard;
  PpdOutput output;
  for (size_t first = 0; first < sources.size(); first += static_cast<size_t>(decoding.batch)) {
    const size_t count = std::min(sources.size() - first, static_cast<size_t>(decoding.batch));
    RowBatch batch = make_batch(model, sources.subspan(first, count), decoding.limit);
    const int64_t before = layer_runs(*batch.state);
    PhaseTimer timer(model.info().device);
    decode(batch, timer);
    output.layer_runs.push_back(layer_runs(*batch.state) - before);
    output.ids.resize(first + count);
    output.stats.resize(first + count);
    for (Row& row : batch.finished) {
      output.ids[first + row.output].assign(row.tokens.begin() + row.prefix, row.tokens.end());
      output.stats[first + row.output] = row.stats;
    }
    output.states.push_back(std::move(batch.state));
  }
  return output;
}

}  // namespace

PpdOutput run_ppd(model::TransformerModel& model, std::span<const Ids> sources, const PpdDecoding& decoding) {
  return run(model, sources, decoding, [&](RowBatch& batch, PhaseTimer& timer) {
    decode_ppd(model, decoding.exits, decoding.ppd, decoding.settings, batch, timer);
  });
}

PpdOutput run_plainly(model::TransformerModel& model, std::span<const Ids> sources, const PpdDecoding& decoding) {
  return run(model, sources, decoding,
             [&](RowBatch& batch, PhaseTimer& timer) { decode_plainly(model, decoding.settings, batch, timer); });
}

ForcedMatches forced_matches(model::TransformerModel& model, const Ids& source, const Ids& ids,
                             const PpdDecoding& decoding) {
  const model::DecodingGuard guard;
  Ids whole = prefix_of(model, source);
  const size_t prefix = whole.size();
  whole.insert(whole.end(), ids.begin(), ids.end());
  whole.pop_back();
  model::ForwardInput input;
  const std::vector<Ids> sources{source};
  const std::vector<Ids> targets{whole};
  input.source = padded(sources);
  input.target = padded(targets);
  input.hidden_layers = {decoding.ppd.early_layer};
  const at::Tensor hidden = model.forward(input).layers.front();  // [1,T,D]
  const at::Tensor best = std::get<1>(
      model::exit_logits(model, decoding.exits, decoding.ppd.early_layer, hidden).topk(decoding.ppd.candidates));
  ForcedMatches forced;
  for (size_t t = 0; t < ids.size(); ++t) {
    if (static_cast<int64_t>(t) + 1 == decoding.limit) continue;
    std::set<int64_t> candidates;
    for (int64_t i = 0; i < decoding.ppd.candidates; ++i) {
      candidates.insert(best[0][static_cast<int64_t>(prefix + t) - 1][i].item<int64_t>());
    }
    for (const int64_t eos : decoding.settings.eos) candidates.erase(eos);
    forced.branches += std::ssize(candidates);
    if (t + 1 == ids.size()) continue;
    ++forced.predictions;
    forced.matches += candidates.contains(ids[t]) ? 1 : 0;
  }
  return forced;
}

}  // namespace draftsmith::infer::testing
