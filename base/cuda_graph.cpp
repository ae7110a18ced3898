#include "base/cuda_graph.h"

#ifdef DRAFTSMITH_CUDA_GRAPHS
#include <map>

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
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
  CudaGraphWork(c10::Device device, std::shared_ptr<at::cuda::MemPool> pool, const std::function<void()>& work)
      : pool_(std::move(pool)) {
    const c10::cuda::CUDAStream earlier = c10::cuda::getCurrentCUDAStream(device.index());
    const c10::cuda::CUDAStream stream = recording_stream(device.index());
    earlier.synchronize();
    const c10::StreamGuard guard(stream.unwrap());
    graph_.capture_begin(pool_->id(), cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try_to([&] { graph_.capture_end(); });
      stop_filling_pool(device);
      throw;
    }
    try {
      graph_.capture_end();
    } catch (...) {
      stop_filling_pool(device);
      throw;
    }
  }

  void replay() override { graph_.replay(); }

 private:
  // Does what may fail after an error that matters more.
  template <class Action>
  static void try_to(const Action& action) noexcept {
    try {
      action();
    } catch (const std::exception&) {
    }
  }

  // A recording that CUDA ends with an error leaves the allocator taking memory from the pool.
  void stop_filling_pool(c10::Device device) noexcept {
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device.index(), pool_->id()); });
  }

  std::shared_ptr<at::cuda::MemPool> pool_;  // outlives the graph
  at::cuda::CUDAGraph graph_;
};

}  // namespace

GraphRecorder cuda_graph_recorder() {
  return [](c10::Device device, WorkMemory& memory, const std::function<void()>& work) {
    if (!memory) {
      const c10::DeviceGuard guard(device);
      memory = std::make_shared<at::cuda::MemPool>(nullptr, /*is_user_created=*/false);
    }
    const auto pool = std::static_pointer_cast<at::cuda::MemPool>(memory);
    try {
      return std::make_unique<CudaGraphWork>(device, pool, work);
    } catch (const c10::OutOfMemoryError&) {
      c10::cuda::CUDACachingAllocator::emptyCache();  // which cannot be done while recording
      return std::make_unique<CudaGraphWork>(device, pool, work);
    }
  };
}

#else

GraphRecorder cuda_graph_recorder() {
  return {};
}

#endif

}  // namespace draftsmith
