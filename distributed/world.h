// The processes of a job: what they sum, tell each other and share out. All other code knows only this interface; with
// one process every verb is the identity.
//
// All processes call the same verbs in the same order, except ticket() and fail(). Randomness never depends on a rank:
// work is dealt out by its number (a micro-batch, a source), so results do not depend on the number of processes but
// for the rounding of sums.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith {

class World {
 public:
  // Returns the world of a single process.
  static World& alone();

  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return rank_; }  // 0 to size - 1
  int64_t size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  // Returns whether this process writes files and talks to the user: rank 0 does.
  bool leads() const { return rank_ == 0; }
  // Returns whether piece `number` of a work that is dealt out is this process's.
  bool has(int64_t number) const { return number % size_ == rank_; }

  // Replaces each tensor by its sum over all processes, whose tensors have the same shapes and types. All processes get
  // the same bits. Small tensors travel together. `as`: floating-point numbers travel and are added in this type;
  // absent: in their own. Errors: RunError when another process is lost or late.
  virtual void sum(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> as = {}) = 0;
  // Begins sum(). The tensors must not be read or written until the returned function has been called, once: it
  // waits for the end. Other sums may begin and end meanwhile. Errors of both: as sum().
  virtual std::function<void()> begin_sum(const std::vector<at::Tensor>& tensors,
                                          std::optional<at::ScalarType> as = {}) = 0;
  // Replaces each tensor of list r by that of process r, on all processes. Errors: as sum().
  virtual void broadcast_each(const std::vector<std::vector<at::Tensor>>& by_owner) = 0;
  // Replaces each tensor of process `to` by that of process `from`; the others do nothing. Errors: as sum().
  virtual void transfer(const std::vector<at::Tensor>& tensors, int64_t from, int64_t to) = 0;
  // Returns the texts of all processes, by rank. Waits as long as all are alive: `what` may take hours. Errors:
  // RunError that names the process that failed, was lost or is not heard of; Interrupted when one was asked to stop
  // and not all come here within 20 s.
  virtual std::vector<std::string> gather(const std::string& what, const std::string& text) = 0;
  // Returns 0, 1, 2, ... to whichever processes ask, each number once in a job.
  virtual int64_t ticket(const std::string& counter) = 0;
  // Tells the other processes why this one is about to end. They end soon afterwards. Never throws.
  virtual void fail(const std::string& message) noexcept = 0;
  // Returns why the job must end soon, though this process itself could go on: another one failed, was lost or is
  // silent. Empty while there is no such reason. With a reason, and when another process was asked to stop,
  // stop_requested() (base/signals.h) is true.
  virtual std::string reason() const = 0;
  // Returns the seconds that this process spent in the verbs, mostly waiting for others.
  virtual double waited() const = 0;

  // Replaces each tensor by the leader's. Errors: as sum().
  void broadcast(const std::vector<at::Tensor>& tensors) { broadcast_each({tensors}); }
  // Returns a name for ticket() that was not used before. All processes call it in the same order.
  std::string new_counter(const std::string& what) { return what + "/" + std::to_string(counters_++); }
  // Waits until all processes are here.
  void wait_for_all(const std::string& what) { gather(what, ""); }
  // Returns the leader's text.
  std::string from_leader(const std::string& what, const std::string& text);
  // Returns whether `value` holds on any process.
  bool any(const std::string& what, bool value);
  // Checks that all processes have the same `value` of `what` ("the recipe"). Errors: UserError that names the
  // processes that differ.
  void require_same(const std::string& what, const std::string& value);

 protected:
  World(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

 private:
  int64_t rank_;
  int64_t size_;
  int64_t counters_ = 0;
};

}  // namespace draftsmith
