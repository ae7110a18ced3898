// Calls that may never return, such as those to a store whose process stands still.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace draftsmith {

// The other side gave no answer in time.
class NoAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Makes calls, one at a time, in a thread of its own, and gives up on one that takes too long.
class PatientCalls {
 public:
  // `silence`: message of NoAnswer.
  PatientCalls(std::chrono::seconds timeout, std::string silence);
  // Leaves the thread behind if its call has not returned.
  ~PatientCalls();
  PatientCalls(const PatientCalls&) = delete;
  PatientCalls& operator=(const PatientCalls&) = delete;

  // Returns what `call` returns, which owns all that it needs: it may go on after run() has given up. Errors: those of
  // `call`; NoAnswer after the timeout, and then in every later run().
  template <class Call>
  auto run(Call call) {
    using Result = decltype(call());
    const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));
    auto answer = task->get_future();
    post([task] { (*task)(); });
    if (answer.wait_for(timeout_) != std::future_status::ready) give_up();
    return answer.get();
  }

 private:
  struct Thread;

  void post(std::function<void()> call);
  [[noreturn]] void give_up();

  std::chrono::seconds timeout_;
  std::string silence_;
  std::shared_ptr<Thread> thread_;
  bool silent_ = false;
};

}  // namespace draftsmith
