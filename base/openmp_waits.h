// How OpenMP's threads wait for the next parallel region.
#pragma once

namespace draftsmith {

// Lets OpenMP's threads sleep some 50 us after a region. By default GNU's OpenMP lets them spin for milliseconds:
// meanwhile a decoding step's own threads (model/cpu/team.h) and other processes have a processor less, and two
// processes that train wait for each other's spinning threads. Does nothing where the environment says how to wait
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT) or another OpenMP is in use. The first call does it, for the whole process.
void shorten_openmp_waits();

}  // namespace draftsmith
