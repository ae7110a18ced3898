#include "distributed/patient_calls.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace draftsmith {

// What the thread shares with its owner, which may be gone before it.
struct PatientCalls::Thread {
  std::mutex mutex;
  std::condition_variable wake;
  std::function<void()> call;  // empty: none waits
  bool over = false;
  std::thread thread;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return over || call; });
      if (!call) return;
      const auto taken = std::exchange(call, nullptr);
      lock.unlock();
      taken();
      lock.lock();
    }
  }
};

PatientCalls::PatientCalls(std::chrono::seconds timeout, std::string silence)
    : timeout_(timeout), silence_(std::move(silence)), thread_(std::make_shared<Thread>()) {
  thread_->thread = std::thread([shared = thread_] { shared->work(); });
}

PatientCalls::~PatientCalls() {
  {
    const std::lock_guard lock(thread_->mutex);
    thread_->over = true;
  }
  thread_->wake.notify_one();
  if (silent_) {
    thread_->thread.detach();
  } else {
    thread_->thread.join();
  }
}

void PatientCalls::post(std::function<void()> call) {
  if (silent_) throw NoAnswer(silence_);
  {
    const std::lock_guard lock(thread_->mutex);
    thread_->call = std::move(call);
  }
  thread_->wake.notify_one();
}

void PatientCalls::give_up() {
  silent_ = true;
  throw NoAnswer(silence_);
}

}  // namespace draftsmith
