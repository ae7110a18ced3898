// Parallel regions of LibTorch that fewer threads than usual can run, with the same results to the bit.
//
// at::parallel_for() and LibTorch's operators cut their work by the number of OpenMP's threads, so that number decides
// how sums round. Here it stays, and says only how the work is cut: the pieces, *logical threads*, are run by as many
// threads as there are processors for. Beside busy processes that matters: a thread that waits for its processor holds
// up all others at the end of every region, thousands of times in a training step.
//
// To that end the program defines OpenMP's entry points GOMP_parallel, omp_get_thread_num, ... itself. The dynamic
// linker prefers them to those of libgomp, to which they pass on what they do not handle. Regions with barriers inside
// need all threads, and get them.
#pragma once

#include <cstdint>

namespace draftsmith {

// Lets regions that begin from now on be run by `workers` threads at most, for the whole process; 0: by all. At most
// workers - 1 threads besides the caller compute. Has no effect where LibTorch uses another OpenMP than GNU's.
void limit_region_workers(int64_t workers);

// Returns the limit; 0: none.
int64_t region_workers();

// Returns whether the program's entry points are those that LibTorch calls.
bool handles_regions();

}  // namespace draftsmith
