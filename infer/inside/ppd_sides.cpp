#include "infer/inside/ppd_sides.h"

#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer {
namespace {

// Number of looks for the other side before sleeping: waking up costs as much as a layer of a small model.
constexpr int kLooks = 200;

// Sets the calling thread's limit. ATen initialises the limit at a thread's first parallel region; asking for it first
// makes ATen do so before ours is set.
void limit_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

}  // namespace

const NamedValues<PpdExecution>& ppd_executions() {
  static const NamedValues<PpdExecution> kExecutions(
      "execution of ppd",
      {{"batched", PpdExecution::kBatched}, {"threads", PpdExecution::kThreads}, {"streams", PpdExecution::kStreams}});
  return kExecutions;
}

// A thread that runs one piece of work at a time. One atomic hands the work over and back: each side's release store
// and the other's acquire load order everything that was written.
class PpdSides::Worker {
 public:
  // Returns once the thread is ready.
  explicit Worker(int threads) : thread_([this, threads] { live(threads); }) { wait_while(State::kWorking); }
  ~Worker() {
    pass_on(State::kEnding);
    thread_.join();
  }

  // `work` must live until finish().
  void start(const PpdSide& work) {
    work_ = &work;
    pass_on(State::kWorking);
  }
  // Waits for the work. Returns its exception, if it threw one.
  std::exception_ptr finish() {
    wait_while(State::kWorking);
    return std::exchange(failure_, nullptr);
  }

 private:
  enum class State { kIdle, kWorking, kEnding };

  void pass_on(State next) {
    state_.store(next, std::memory_order_release);
    state_.notify_one();
  }
  void wait_while(State now) const {
    for (int look = 0; look < kLooks; ++look) {
      if (state_.load(std::memory_order_acquire) != now) return;
      std::this_thread::yield();
    }
    state_.wait(now, std::memory_order_acquire);
  }

  void live(int threads) {
    const model::DecodingGuard guard;
    limit_threads(threads);
    for (pass_on(State::kIdle);; pass_on(State::kIdle)) {
      wait_while(State::kIdle);
      if (state_.load(std::memory_order_acquire) == State::kEnding) return;
      try {
        (*work_)();
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
  }

  std::atomic<State> state_{State::kWorking};  // until the thread is ready
  const PpdSide* work_ = nullptr;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it reads the others
};

// The stream of the branches, ordered with the caller's stream by events.
class PpdSides::BranchStream {
 public:
  explicit BranchStream(at::Device device)
      : device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)),
        begun_(device.type(), c10::EventFlag::PYTORCH_DEFAULT),
        done_(device.type(), c10::EventFlag::PYTORCH_DEFAULT) {}

  // Called on the caller's thread, before and after the work.
  void begin() { begun_.record(callers_stream()); }
  void end() const { done_.block(callers_stream()); }
  // Called on the worker's thread, which exists because copies to the device wait for their stream.
  void run(const PpdSide& work) {
    const c10::StreamGuard guard(stream_);
    begun_.block(stream_);
    work();
    done_.record(stream_);
  }

 private:
  c10::Stream callers_stream() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

  at::Device device_;
  c10::Stream stream_;
  c10::Event begun_;
  c10::Event done_;
};

PpdSides::PpdSides(PpdExecution execution, at::Device device) : threads_(at::get_num_threads()) {
  if (execution == PpdExecution::kBatched) return;
  if ((execution == PpdExecution::kThreads) != device.is_cpu()) {
    throw std::logic_error("PPD runs on threads on a CPU and on streams on a GPU");
  }
  // Sets limits for the whole lifetime: a team of threads that shrinks and grows in each round would be created again
  // each time, and the caller's idle threads would spin on the worker's cores.
  const int workers_share = std::max(1, threads_ / 2);
  if (execution == PpdExecution::kStreams) stream_ = std::make_unique<BranchStream>(device);
  worker_ = std::make_unique<Worker>(workers_share);
  limit_threads(std::max(1, threads_ - workers_share));
}

PpdSides::~PpdSides() {
  if (worker_) limit_threads(threads_);
}

void PpdSides::run_in_turn(const PpdSide& branches, const PpdSide& main) {
  branches();
  main();
}

void PpdSides::run(const PpdSide& branches, const PpdSide& main) {
  if (!worker_) return run_in_turn(branches, main);
  if (stream_) stream_->begin();
  const PpdSide on_stream = [&] { stream_->run(branches); };
  worker_->start(stream_ ? on_stream : branches);
  std::exception_ptr failure;
  try {
    main();
  } catch (...) {
    failure = std::current_exception();  // rethrown below, after the branches have stopped reading the caller's data
  }
  const std::exception_ptr theirs = worker_->finish();
  if (stream_) stream_->end();
  if (failure || theirs) std::rethrow_exception(failure ? failure : theirs);
}

}  // namespace draftsmith::infer
