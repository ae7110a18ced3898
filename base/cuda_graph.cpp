#include "base/device_graph.h"

#ifdef DRAFTSMITH_CUDA_GRAPHS
#include <map>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "base/cuda_runtime.h"
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

// Does what may fail after an error that matters more.
template <class Action>
void try_to(const Action& action) noexcept {
  try {
    action();
  } catch (const std::exception&) {
  }
}

// Gives the default generator of a device a new state with the same seed. LibTorch 2.11 leaves the state of a failed
// recording marked as being recorded, and every later use of it would fail.
void renew_generator(c10::DeviceIndex device) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device);
  at::Generator fresh = at::cuda::detail::createCUDAGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  fresh.set_current_seed(generator.current_seed());
  fresh.set_offset(generator.get_offset());
  generator.get<at::CUDAGeneratorImpl>()->graphsafe_set_state(
      fresh.get<at::CUDAGeneratorImpl>()->graphsafe_get_state());
}

// Memory that graphs record in. LibTorch 2.11 counts who uses the pool of pinned memory beside it, and cannot record in
// a pool whose last graph is gone: this counts as one more.
class GraphPool {
 public:
  GraphPool() : pool_(nullptr, /*is_user_created=*/false) {
    host().begin_allocate_to_pool(id(), [](c10::Stream) { return false; });
    host().end_allocate_to_pool(id());
  }
  ~GraphPool() { host().release_pool(id()); }
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  at::cuda::MempoolId_t id() { return pool_.id(); }

 private:
  static at::HostAllocator& host() { return *at::getHostAllocator(at::kCUDA); }

  at::cuda::MemPool pool_;
};

class CudaGraphWork final : public RecordedWork {
 public:
  // Records on a stream of its own: the default one cannot be recorded.
  CudaGraphWork(c10::Device device, std::shared_ptr<GraphPool> pool, const std::function<void()>& work)
      : pool_(std::move(pool)) {
    const c10::cuda::CUDAStream earlier = c10::cuda::getCurrentCUDAStream(device.index());
    const c10::cuda::CUDAStream stream = recording_stream(device.index());
    earlier.synchronize();
    const c10::StreamGuard guard(stream.unwrap());
    try {
      graph_.capture_begin(pool_->id(), cudaStreamCaptureModeThreadLocal);
      work();
    } catch (...) {
      try_to([&] { graph_.capture_end(); });
      clean_up(device.index());
      throw;
    }
    try {
      graph_.capture_end();
    } catch (...) {
      clean_up(device.index());
      throw;
    }
    graph_.instantiate();
    try_to([&] {
      size_t nodes = 0;
      const CudaRuntime runtime = cuda_runtime();
      runtime.check(runtime.graph_nodes(graph_.raw_cuda_graph(), nullptr, &nodes), "a recording cannot be counted");
      nodes_ = static_cast<int64_t>(nodes);
    });
  }

  int64_t nodes() const override { return nodes_; }

 private:
  void replay_now() override { graph_.replay(); }

  // Undoes what LibTorch 2.11 leaves of a recording that CUDA ended with an error: two allocators go on to fill the
  // pool, and the generator counts as being recorded.
  void clean_up(c10::DeviceIndex device) noexcept {
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_->id()); });
    try_to([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_->id()); });
    try_to([&] { renew_generator(device); });
  }

  std::shared_ptr<GraphPool> pool_;  // outlives the graph
  at::cuda::CUDAGraph graph_{/*keep_graph=*/true};
  int64_t nodes_ = 0;
};

}  // namespace

GraphRecorder cuda_graph_recorder() {
  return [](c10::Device device, WorkMemory& memory, const std::function<void()>& work) {
    if (!memory) {
      const c10::DeviceGuard guard(device);
      memory = std::make_shared<GraphPool>();
    }
    const auto pool = std::static_pointer_cast<GraphPool>(memory);
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
