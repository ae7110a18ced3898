// The C library's memory allocator, set for programs that work with tensors.
#pragma once

namespace draftsmith {

// From here on the process keeps memory that it frees, for the next tensor. By default glibc gives large blocks back to
// the kernel at once, which must then clear and map every page again: at the sizes of logits that takes as long as
// computing with them. Peak memory is unchanged. Programs call it once, first thing; without effect on other C
// libraries or under another allocator.
void keep_freed_memory();

}  // namespace draftsmith
