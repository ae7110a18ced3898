// Work that the processes of a job share: parts whose results all of them get, pieces that whoever is free takes, and
// work of the leader for which the others wait.
//
// All processes call these functions in the same order. When one of them is asked to stop during its part, all throw
// Interrupted (base/signals.h) together. Errors of `work` and `part` are the process's own; the others learn of them
// where they wait (World::gather()).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "distributed/world.h"

namespace draftsmith {

// Returns what each process's part of `what` gives, by rank.
std::vector<nlohmann::json> gather_parts(World& world, const std::string& what,
                                         const std::function<nlohmann::json()>& part);

// Runs `work` on the leader. The others sleep meanwhile, so that it may measure times.
void run_on_leader(World& world, const std::string& what, const std::function<void()>& work);

// Calls work(number) for each number below `count`, on whichever process is free, and returns when all are done.
// Returns the numbers that this process took, rising.
std::vector<int64_t> deal_out(World& world, const std::string& what, int64_t count,
                              const std::function<void(int64_t)>& work);

// Counts on the leader's progress the pieces that all processes have finished.
class SharedProgress {
 public:
  // `sizes`: of the pieces, in the unit of `progress`. Which of them are finished is not known, only how many: they
  // should be about as large as each other, or finished in about this order. All processes make one together.
  SharedProgress(World& world, const std::string& what, std::vector<int64_t> sizes, Progress& progress);

  // Counts one piece of this process.
  void finished_one();
  // Counts all pieces: every process is done.
  void finished_all();

 private:
  World& world_;
  std::string counter_;
  std::vector<int64_t> sizes_;
  Progress& progress_;
  size_t shown_ = 0;  // pieces
};

// Returns a number as a text from which exact_number() reads the same bits, since JSON has no NaN and no infinity.
std::string exact_text(double number);
double exact_number(const nlohmann::json& text);

}  // namespace draftsmith
