// The C library's memory for the large temporaries of training on a CPU.
#pragma once

namespace draftsmith::train {

// Keeps freed memory in the process instead of returning it to the kernel after every large temporary. By default each
// of them is mapped, zeroed page by page and unmapped again, which costs training a sizeable part of its time. Acts on
// the whole process; further calls change nothing. No effect with C libraries other than glibc.
void keep_freed_memory();

}  // namespace draftsmith::train
