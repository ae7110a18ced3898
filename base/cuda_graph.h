// The recorder of CUDA graphs.
#pragma once

#include "base/device_kernels.h"

namespace draftsmith {

// Returns the recorder of NVIDIA GPUs; empty if this build had no CUDA headers.
GraphRecorder cuda_graph_recorder();

}  // namespace draftsmith
