// The rows of a batch on the device: texts, lengths and random numbers, which rounds there read and advance without the
// host (infer/loop/device_loop.h). Each operator is one launch and can be recorded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// Int64 tensors of a batch. Rows that are not active stay as they are.
struct DeviceRows {
  at::Tensor numbers;   // [5,B] the next five
  at::Tensor length;    // [B] committed tokens, start token or prompt included
  at::Tensor prefix;    // [B] length of the start token or prompt
  at::Tensor end;       // [B] length at which a text ends
  at::Tensor drafted;   // [B] tokens that the drafter's state holds
  at::Tensor active;    // [B] 1: the row goes on, 0: it has ended
  at::Tensor text;      // [B,C] committed tokens, then room for a round's
  at::Tensor eos;       // [E] ids that end a row
  at::Tensor uniforms;  // fp64 [B,N,3] of new token n and each use (Draw); undefined: nothing is drawn

  // Returns copies on `device`, for which the host does not wait.
  DeviceRows to(at::Device device) const;
  // Copies other rows into these tensors, likewise. Returns false if their sizes differ.
  bool take(const DeviceRows& host);
};

// Sizes of the rows' tensors.
struct DeviceRowsShape {
  int64_t capacity = 0;  // most tokens of a row
  int64_t window = 0;    // rounds add at most so many tokens and one
  bool draws = false;    // random numbers will be read
};

// Returns the rows on the host. `drafted` [B]: tokens that the drafter's state holds.
DeviceRows device_rows(std::span<const Row> rows, std::span<const int64_t> drafted, std::span<const int64_t> eos,
                       const DeviceRowsShape& shape);

// What the models run in a round, int64. Views of one tensor.
struct RoundPlan {
  at::Tensor last;                        // [B,1] each row's last committed token
  at::Tensor base;                        // [B] the target's tokens before this one
  at::Tensor new_tokens;                  // [B] tokens that the target processes: the last and the drafted ones
  at::Tensor counts;                      // [B] tokens to draft: the window, or fewer before the end of the text
  at::Tensor unseen;                      // [B,2] committed tokens that the drafter has not processed: one, or two
  std::vector<at::Tensor> base_of_draft;  // one [B] for each drafting step
  std::vector<at::Tensor> new_of_draft;   // one [B] for each drafting step; the first processes `unseen`
};

// Plans a round of at most `window` drafted tokens; 0: the target's own token alone.
RoundPlan plan_round(const DeviceRows& rows, int64_t window);

// Commits a round: the first accepted[b] drafted tokens and the target's next one, up to the end of the text. Ends rows
// at an EOS, at their limit, and where a token is kNoToken. All int64: drafted [B,G], counts, accepted and next [B].
void commit_round(const DeviceRows& rows, const at::Tensor& drafted, const at::Tensor& counts,
                  const at::Tensor& accepted, const at::Tensor& next);

// Returns the random numbers of new tokens, from the text's next one + first on: fp64 [B,count].
at::Tensor row_uniforms(const DeviceRows& rows, Draw use, int64_t first, int64_t count);

// Returns whether these work on a device: on a GPU that kernels can run on, and on CPUs.
bool has_round_operators(at::Device device);

// Returns the source of the kernels.
KernelSource round_source();

}  // namespace draftsmith::infer
