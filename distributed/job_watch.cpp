#include "distributed/job_watch.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "base/logging.h"
#include "base/signals.h"
#include "distributed/patient_calls.h"

namespace draftsmith {

namespace {

constexpr std::chrono::seconds kBetweenLooks{1};

std::string failed_key(int64_t rank) {
  return fmt::format("failed/{}", rank);
}
std::string stopped_key(int64_t rank) {
  return fmt::format("stopped/{}", rank);
}
std::string alive_key(int64_t rank) {
  return fmt::format("alive/{}", rank);
}

}  // namespace

void JobWatch::tell_failure(JobStore& store, int64_t rank, const std::string& message) {
  store.set(failed_key(rank), message);
}

JobWatch::JobWatch(std::unique_ptr<JobStore> store, const Launch& launch, std::chrono::seconds timeout)
    : store_(std::move(store)),
      rank_(launch.rank),
      size_(launch.size),
      timeout_(timeout),
      signs_(static_cast<size_t>(launch.size), Sign{"", Clock::now()}) {
  thread_ = std::thread([this] { run(); });
}

JobWatch::~JobWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::string JobWatch::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

std::string JobWatch::await_reason(std::chrono::seconds time) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, time, [this] { return !reason_.empty(); });
  return reason_;
}

void JobWatch::run() {
  for (int64_t sign = 0;; ++sign) {
    std::string found;
    try {
      store_->set(alive_key(rank_), std::to_string(sign));
      if (stop_requested() != 0) store_->set(stopped_key(rank_), "1");
      found = look();
    } catch (const NoAnswer& silence) {
      found = silence.what();
    } catch (const std::exception&) {
      found = "the job's store is gone, and with it process 0 or the launcher";
    }
    std::unique_lock lock(mutex_);
    if (!found.empty()) {
      reason_ = found;
      request_stop(SIGTERM);
      wake_.notify_all();
      return;
    }
    if (wake_.wait_for(lock, kBetweenLooks, [this] { return over_; })) return;
  }
}

std::string JobWatch::look() {
  for (int64_t other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    if (store_->has({failed_key(other)})) {
      return fmt::format("process {} of {} failed: {}", other, size_, store_->get({failed_key(other)}).front());
    }
    if (stop_requested() == 0 && store_->has({stopped_key(other)})) {
      log_warning("process {} of {} was asked to stop, so all do", other, size_);
      request_stop(SIGTERM);
    }
    Sign& sign = signs_[static_cast<size_t>(other)];
    std::string value = store_->has({alive_key(other)}) ? store_->get({alive_key(other)}).front() : "";
    if (value != sign.value) sign = {std::move(value), Clock::now()};
    if (Clock::now() - sign.changed > timeout_) {
      return fmt::format("process {} of {} has given no sign of life for {} s", other, size_, timeout_.count());
    }
  }
  return "";
}

}  // namespace draftsmith
