// Settings of the C library's memory allocator for programs that work with tensors.
#pragma once

namespace draftsmith {

// Makes the process keep the memory that it frees, for the next tensor. By default glibc returns large blocks to the
// kernel at once, which must then clear and map every page again: for tensors of the size of logits, that takes as long
// as computing with them. Peak memory is unchanged. Programs call this once, at their start. It has no effect with
// other C libraries or allocators.
void keep_freed_memory();

}  // namespace draftsmith
