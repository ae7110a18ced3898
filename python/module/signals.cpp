#include "python/module/signals.h"

#include <csignal>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <pybind11/pybind11.h>

#include "base/logging.h"
#include "base/signals.h"
#include "python/module/errors.h"

namespace draftsmith::python {
namespace {

namespace py = pybind11;

// LibTorch's settings for the process, restored at the end.
class TorchSettings {
 public:
  ~TorchSettings() {
    at::Context& context = at::globalContext();
    context.setAllowTF32CuBLAS(tf32_);
    restore(bf16_, [&](bool reduced, bool split_k) { context.setAllowBF16ReductionCuBLAS(reduced, split_k); });
    restore(fp16_, [&](bool reduced, bool split_k) { context.setAllowFP16ReductionCuBLAS(reduced, split_k); });
    at::set_num_threads(threads_);
    start_logging(LogLevel::kWarning);
  }

 private:
  template <class Set>
  static void restore(at::CuBLASReductionOption option, const Set& set) {
    using Option = at::CuBLASReductionOption;
    set(option == Option::AllowReducedPrecisionWithSplitK, option != Option::DisallowReducedPrecisionDisallowSplitK);
  }

  int threads_ = at::get_num_threads();
  bool tf32_ = at::globalContext().allowTF32CuBLAS();
  at::CuBLASReductionOption bf16_ = at::globalContext().allowBF16ReductionCuBLAS();
  at::CuBLASReductionOption fp16_ = at::globalContext().allowFP16ReductionCuBLAS();
};

// Waits for the work and serves signals. Returns the first exception that a handler raised.
std::optional<py::error_already_set> serve_signals(const std::future<void>& work) {
  std::optional<py::error_already_set> raised;
  for (;;) {
    {
      const py::gil_scoped_release others;
      if (work.wait_for(kLookEvery) == std::future_status::ready) return raised;
    }
    if (PyErr_CheckSignals() == 0) continue;
    if (raised) {
      PyErr_Clear();  // the work is stopping
    } else {
      raised.emplace();
      request_stop(SIGINT);
    }
  }
}

// The process's one job: stop requests and LibTorch's settings belong to the process.
std::mutex& job_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void SignalPoll::operator()() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kLookEvery;
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw PythonError();
}

void run_job(const std::function<void()>& work) {
  const std::unique_lock only(job_mutex(), std::try_to_lock);
  if (!only) {
    throw Busy({.what = "another training or evaluation runs in this process",
                .expected = "one at a time",
                .found = "a second call of train() or evaluate()",
                .hint = "wait for the first, or use another process"});
  }
  const TorchSettings settings;
  const SignalWatch watch(SignalWatch::Handlers::kCallers);
  std::packaged_task<void()> task(work);
  std::future<void> done = task.get_future();
  std::thread worker(std::move(task));
  const std::optional<py::error_already_set> raised = serve_signals(done);
  worker.join();
  if (!raised) return done.get();
  try {
    done.get();
  } catch (const Interrupted&) {
    if (raised->matches(PyExc_KeyboardInterrupt)) throw;
  }
  throw py::error_already_set(*raised);
}

}  // namespace draftsmith::python
