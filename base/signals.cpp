#include "base/signals.h"

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <utility>

namespace draftsmith {
namespace {

// A handler can only use globals; a lock-free atomic is async-signal-safe.
std::atomic<int> received{0};
std::atomic<bool> watching{false};
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction earlier_interrupt, earlier_terminate;

thread_local const LongWork* innermost_work = nullptr;

void note_signal(int signal) {
  received.store(signal, std::memory_order_relaxed);
}

}  // namespace

Interrupted::Interrupted(int signal, const std::string& saved)
    : Error({{"", signal == SIGINT ? "interrupted (SIGINT)" : "asked to terminate (SIGTERM)", "", "", saved}}),
      signal_(signal) {}

SignalWatch::SignalWatch(Handlers handlers) : handlers_(handlers) {
  if (watching.exchange(true)) throw std::logic_error("SignalWatch: another one exists");
  received = 0;
  if (handlers_ == Handlers::kCallers) return;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // SA_RESETHAND: a second signal acts as without a watch. SA_RESTART: interrupted reads and writes continue.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, &earlier_interrupt);
  sigaction(SIGTERM, &action, &earlier_terminate);
}

SignalWatch::~SignalWatch() {
  if (handlers_ == Handlers::kOwn) {
    sigaction(SIGINT, &earlier_interrupt, nullptr);
    sigaction(SIGTERM, &earlier_terminate, nullptr);
  }
  received = 0;
  watching = false;
}

int stop_requested() {
  return received.load(std::memory_order_relaxed);
}

void request_stop(int signal) {
  int none = 0;
  received.compare_exchange_strong(none, signal, std::memory_order_relaxed);
}

void throw_if_stop_requested(std::string_view saved) {
  if (const int signal = stop_requested()) throw Interrupted(signal, std::string(saved));
}

LongWork::LongWork(std::string saved, std::function<void()> tick)
    : saved_(std::move(saved)), tick_(std::move(tick)), outer_(std::exchange(innermost_work, this)) {}

LongWork::~LongWork() {
  innermost_work = outer_;
}

void work_point() {
  const LongWork* work = innermost_work;
  if (work == nullptr) return;
  if (!work->saved_.empty()) throw_if_stop_requested(work->saved_);
  if (work->tick_) work->tick_();
}

}  // namespace draftsmith
