// Threads that compute a decoding step together. A step is dozens of phases of some microseconds, too short for a
// parallel region each: the threads go through all phases on their own, and a phase begins when the one before is done.
//
// A thread takes the pieces of a phase that are its own, so that its caches hold the same weights in every step, then
// those that another has not begun. Waiting threads spin, then yield, then sleep.
#pragma once

#include <cstdint>
#include <memory>

namespace draftsmith::model {

// Phases of work. The threads of a team call run() at once.
class TeamProgram {
 public:
  virtual ~TeamProgram() = default;
  virtual int64_t phases() const = 0;
  // Returns the number of independent items of a phase.
  virtual int64_t items(int64_t phase) const = 0;
  // Computes the items [begin,end). An exception, as of lacking memory, ends the program.
  virtual void run(int64_t phase, int64_t begin, int64_t end) const = 0;
};

class Team {
 public:
  // `threads`: at least 1, with the one that calls run().
  explicit Team(int64_t threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int64_t threads() const;
  // Runs all phases in order. For one thread at a time. Throws the first exception of an item.
  void run(const TeamProgram& program);

  // Returns the team of the calling thread, of at::get_num_threads() threads; of one inside a parallel region.
  static Team& current();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Calls work(begin, end) for pieces of the items 0 to `items`, by the calling thread's team.
// In a decoding loop it takes the place of at::parallel_for(), whose threads wait for more by spinning, on the
// processors that the team needs.
template <class Work>
void in_pieces(int64_t items, const Work& work) {
  struct Program final : TeamProgram {
    Program(int64_t all, const Work& called) : count(all), piece(called) {}
    int64_t phases() const override { return 1; }
    int64_t items(int64_t /*phase*/) const override { return count; }
    void run(int64_t /*phase*/, int64_t begin, int64_t end) const override { piece(begin, end); }
    int64_t count;
    const Work& piece;
  };
  Team::current().run(Program(items, work));
}

}  // namespace draftsmith::model
