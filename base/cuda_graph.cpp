#include "base/cuda_graph.h"

#ifdef DRAFTSMITH_CUDA_GRAPHS
#include <map>
#include <mutex>
#include <vector>

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

// Memory pools for recorded works. A pool whose works are gone serves the next ones, so that no batch allocates anew.
class Pools {
 public:
  // Returns a pool that nobody else has. It comes back when the last copy of the pointer goes.
  std::shared_ptr<at::cuda::MemPool> take(c10::Device device) {
    const std::scoped_lock lock(mutex_);
    auto& free = free_[device.index()];
    if (free.empty()) {
      const c10::DeviceGuard guard(device);
      free.push_back(std::make_unique<at::cuda::MemPool>(nullptr, /*is_user_created=*/false));
    }
    at::cuda::MemPool* pool = free.back().release();
    free.pop_back();
    return {pool, [this, device](at::cuda::MemPool* used) {
              const std::scoped_lock returning(mutex_);
              free_[device.index()].emplace_back(used);
            }};
  }

  // Returns those of the process, which live as long as it does.
  static Pools& instance() {
    static auto* pools = new Pools;
    return *pools;
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<std::unique_ptr<at::cuda::MemPool>>> free_;
};

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
    if (!memory) memory = Pools::instance().take(device);
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
