#include "base/cuda_graph.h"

#ifdef DRAFTSMITH_CUDA_GRAPHS
#include <map>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace draftsmith {

#ifdef DRAFTSMITH_CUDA_GRAPHS

namespace {

// Returns this thread's stream for recording on a device: always the same one, since cuBLAS keeps a workspace for each.
c10::cuda::CUDAStream recording_stream(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first->second;
}

class CudaGraphWork final : public RecordedWork {
 public:
  // Records on a stream of its own: the default one cannot be recorded.
  CudaGraphWork(c10::Device device, const std::function<void()>& work) {
    const c10::cuda::CUDAStream earlier = c10::cuda::getCurrentCUDAStream(device.index());
    const c10::cuda::CUDAStream stream = recording_stream(device.index());
    earlier.synchronize();
    const c10::StreamGuard guard(stream.unwrap());
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // Ends a recording that failed, whose own error matters more.
  void end_quietly() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

GraphRecorder cuda_graph_recorder() {
  return [](c10::Device device, const std::function<void()>& work) {
    return std::make_unique<CudaGraphWork>(device, work);
  };
}

#else

GraphRecorder cuda_graph_recorder() {
  return {};
}

#endif

}  // namespace draftsmith
