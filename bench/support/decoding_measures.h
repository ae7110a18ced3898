// The measures of bench_device_decoding: speeds of decoding on one device, each a record.
#pragma once

#include <string>
#include <vector>

#include "bench/support/records.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::bench {

struct MeasureSettings {
  at::Device device{at::kCPU};
  at::ScalarType type = at::kFloat;
  int64_t rounds = 5;
  int64_t source = 32;           // tokens of a source or prompt
  int64_t new_tokens = 64;       // decoded tokens a row
  int64_t window = 4;            // of speculation
  std::vector<int64_t> lengths;  // L of the verification curve
  std::vector<double> alphas;    // of speculation
};

// A model under test.
struct NamedModel {
  std::string name;
  model::TransformerModel& model;
};

class DecodingMeasures {
 public:
  // Measures the copy bandwidth at once, for the roofline shares. The records must outlive the measures.
  DecodingMeasures(MeasureSettings settings, int64_t copy_bytes, Records& records);

  // Greedy decoding: time of a step, tokens/s of all rows, with encoder and prefill too, share of the time that reading
  // the weights takes, and nodes of a recorded step.
  void greedy(const NamedModel& named, int64_t rows);
  // Time of a step of L tokens a row beside a step of one token.
  void verification(const NamedModel& named, int64_t rows);
  // Kernels, copies and waits of a greedy token.
  void requests(const NamedModel& named);
  // The drafter's cost ratio c by single steps, in the drafting loop, and by bytes of weights.
  void drafting(const NamedModel& target, const NamedModel& drafter, int64_t rows);
  // Speculation whose tokens are accepted at each rate of `alphas`: speedup over greedy decoding in the same round, and
  // the speedup that the measured steps predict.
  void speculation(const NamedModel& target, const NamedModel& drafter, int64_t rows);
  // Kernels, copies and waits of a round in which all drafted tokens are kept.
  void round_requests(const NamedModel& target, const NamedModel& drafter);

 private:
  double copy_bandwidth(int64_t bytes);

  MeasureSettings settings_;
  Records& records_;
  double bandwidth_ = 0;  // bytes read and written a second
};

}  // namespace draftsmith::bench
