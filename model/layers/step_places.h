// Places of a step's tokens in the K/V caches (StepPlaces), packed in one int64 tensor of 4 B L + 3 B numbers: slot,
// position, prefix and source length of each token, then cache row, source row and last new token of each row.
//
// Steps whose lengths the host knows pack them there. Steps whose lengths lie on the device compute them there, so that
// recorded work runs step after step without the host.
#pragma once

#include <cstdint>
#include <span>

#include "base/aten.h"
#include "base/kernel_texts.h"

namespace draftsmith::model {

// A row's part in a step.
struct PlacedRow {
  int64_t base = 0;        // tokens that its caches hold
  int64_t new_tokens = 0;  // 0..L
  int64_t cache_row = 0;
  int64_t source_row = 0;
  int64_t source_length = 0;
};

// Writes the packed places of a step of L tokens a row. Siblings all have the next position. What is written for tokens
// beyond a row's new ones goes to the slot `spare`.
void write_places(std::span<const PlacedRow> rows, int64_t tokens, bool siblings, int64_t spare, int64_t* packed);

// Returns the packed places of a step on the device of its arguments, in one launch: base and new_tokens int64 [B];
// rows int64 [3,B], the cache row, source row and source length of each.
at::Tensor step_places(const at::Tensor& base, const at::Tensor& new_tokens, const at::Tensor& rows, int64_t tokens,
                       int64_t spare);

// Returns whether step_places() works on a device: on a GPU that kernels can run on, and on CPUs.
bool has_step_places(at::Device device);

// Returns the source of the kernel.
KernelSource step_places_source();

}  // namespace draftsmith::model
