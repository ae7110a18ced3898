// The rows of a batch that is being decoded: what each has so far, its limits and its statistics.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/loop/decode_stats.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

struct Row {
  size_t output = 0;            // index of its result
  uint64_t line = 0;            // of the input, from 0; for messages
  std::vector<int64_t> source;  // encoder-decoder: the encoder's input; decoder-only: empty
  std::vector<int64_t> tokens;  // committed: start token or prompt, then new tokens
  int64_t prefix = 0;           // tokens that are not new
  int64_t limit = 0;            // new tokens at most
  RowRandom random{0, 0, 0};
  bool finished = false;
  bool handover = false;  // the target writes the next token, the drafter nothing
  DecodeStats stats;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t emitted() const { return length() - prefix; }
  int64_t remaining() const { return limit - emitted(); }
  // Commits one token; ends the row at an EOS or the limit. A token after the end is counted as cut.
  void emit(int64_t token, std::span<const int64_t> eos);
};

// Told of a row's new tokens as they are committed: index of its result, the tokens since the last call, and whether
// they are its last.
using OnTokens = std::function<void(size_t output, std::span<const int64_t> tokens, bool finished)>;

// Uniforms fp64 [B,count] for the new tokens from index emitted() + first on, on `device`.
at::Tensor uniforms(std::span<const Row> rows, Draw use, int64_t first, int64_t count, at::Device device);

// An int64 tensor of the given shape on `device`, copied from host values.
at::Tensor to_device(std::span<const int64_t> values, at::IntArrayRef shape, at::Device device);

// Host copy of an int64 or bool tensor, row-major.
std::vector<int64_t> to_host(const at::Tensor& tensor);

// Returns whether one of a batch's flags is set.
inline bool any(const std::vector<int64_t>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](int64_t flag) { return flag != 0; });
}

}  // namespace draftsmith::infer
