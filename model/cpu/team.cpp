#include "model/cpu/team.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <sched.h>

namespace draftsmith::model {
namespace {

constexpr uint64_t kPieces = 4;      // of a thread in a phase
constexpr uint64_t kSlots = 4;       // phases whose counters lie side by side; a slot serves every fourth phase
constexpr uint64_t kCountBits = 16;  // of a counter; the others are the number of its phase
constexpr int kPatience = 64;        // turns before a thread takes the pieces of others
constexpr int kSpins = 2000;         // turns of some 50 ns before a waiting thread yields
constexpr int kYields = 100;         // then before it sleeps

void turn() {
#ifdef __x86_64__
  _mm_pause();
#endif
}

// Waits, by spinning first and yielding then, until done() or for so many turns of each. Returns whether done.
template <class Done>
bool spin(const Done& done, int spins, int yields) {
  for (int i = 0; i < spins; ++i) {
    if (done()) return true;
    turn();
  }
  for (int i = 0; i < yields; ++i) {
    if (done()) return true;
    sched_yield();
  }
  return done();
}

// A count of pieces of the phase with number `serial`, both in one word. Phases are numbered from 1 on, and never anew:
// a thread that was away too long sees that its phase is over, and changes nothing.
class alignas(64) Counter {
 public:
  // Takes one of `all` pieces. Returns its number, or `all` if none is left.
  uint64_t take(uint64_t serial, uint64_t all) {
    uint64_t seen = word_.load(std::memory_order_acquire);
    for (;;) {
      if (seen >> kCountBits > serial) return all;
      const uint64_t taken = count_in(seen, serial);
      if (taken >= all) return all;
      if (word_.compare_exchange_weak(seen, serial << kCountBits | (taken + 1), std::memory_order_acq_rel))
        return taken;
    }
  }

  // Adds finished pieces.
  void add(uint64_t serial, uint64_t pieces) {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(seen, serial << kCountBits | (count_in(seen, serial) + pieces),
                                        std::memory_order_acq_rel)) {
    }
  }

  // Returns whether all pieces of the phase are finished.
  bool reached(uint64_t serial, uint64_t all) const {
    const uint64_t seen = word_.load(std::memory_order_acquire);
    return seen >> kCountBits > serial || count_in(seen, serial) == all;
  }

 private:
  static uint64_t count_in(uint64_t word, uint64_t serial) {
    return word >> kCountBits == serial ? word & ((uint64_t{1} << kCountBits) - 1) : 0;
  }

  std::atomic<uint64_t> word_{0};
};

}  // namespace

struct Team::Shared {
  explicit Shared(int64_t count) : size(static_cast<uint64_t>(count)) {
    for (auto& slot : taken) slot = std::vector<Counter>(size);
  }

  // Starts the workers. If the system refuses one, the destructor ends the others.
  void start() {
    for (uint64_t thread = 1; thread < size; ++thread) {
      workers.emplace_back([this, thread] { work(thread); });
    }
  }

  ~Shared() {
    stopping.store(true, std::memory_order_relaxed);
    end.fetch_add(1, std::memory_order_release);
    end.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  uint64_t pieces() const { return size * kPieces; }

  // Computes a piece that the calling thread has taken: only then do program and phase stand still. Nothing after an
  // exception, which is kept.
  void compute(uint64_t serial, uint64_t piece) {
    const auto phase = static_cast<int64_t>(serial - first);
    const auto items = static_cast<uint64_t>(program->items(phase));
    const uint64_t from = piece * items / pieces(), to = (piece + 1) * items / pieces();
    if (from == to || failed.load(std::memory_order_relaxed)) return;
    try {
      program->run(phase, static_cast<int64_t>(from), static_cast<int64_t>(to));
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }

  // Computes pieces of one thread's share, at most `most`, as long as there are any.
  void compute_share(uint64_t serial, uint64_t share, uint64_t most) {
    uint64_t finished = 0;
    while (finished < most) {
      const uint64_t piece = taken[serial % kSlots][share].take(serial, kPieces);
      if (piece == kPieces) break;
      compute(serial, share * kPieces + piece);
      ++finished;
    }
    if (finished > 0) done[serial % kSlots].add(serial, finished);
  }

  // Takes part in a phase until all of it is done.
  void take_part(uint64_t serial, uint64_t thread) {
    const auto is_done = [&] { return done[serial % kSlots].reached(serial, pieces()); };
    compute_share(serial, thread, kPieces);
    if (spin(is_done, kPatience, 0)) return;
    for (uint64_t i = 1; i < size; ++i) compute_share(serial, (thread + i) % size, kPieces);
    while (!spin(is_done, kSpins, kYields)) {
    }
  }

  void work(uint64_t thread) {
    for (uint64_t serial = 1;; ++serial) {
      const auto given = [&] { return end.load(std::memory_order_acquire) > serial; };
      while (!spin(given, kSpins, kYields)) end.wait(serial, std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      take_part(serial, thread);
    }
  }

  uint64_t size;
  std::array<std::vector<Counter>, kSlots> taken;  // by thread
  std::array<Counter, kSlots> done;
  alignas(64) std::atomic<uint64_t> end{1};  // one more than the number of the last phase that was given
  std::atomic<bool> stopping{false};
  const TeamProgram* program = nullptr;
  uint64_t first = 1;  // number of the program's first phase
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // read when all pieces are counted
  std::vector<std::thread> workers;
};

Team::Team(int64_t threads) : shared_(std::make_unique<Shared>(std::max<int64_t>(1, threads))) {
  shared_->start();
}

Team::~Team() = default;

int64_t Team::threads() const {
  return static_cast<int64_t>(shared_->size);
}

void Team::run(const TeamProgram& program) {
  const int64_t phases = program.phases();
  if (threads() == 1) {
    for (int64_t phase = 0; phase < phases; ++phase) program.run(phase, 0, program.items(phase));
    return;
  }
  const uint64_t begin = shared_->end.load(std::memory_order_relaxed);
  const uint64_t end = begin + static_cast<uint64_t>(phases);
  shared_->program = &program;
  shared_->first = begin;
  shared_->end.store(end, std::memory_order_release);
  shared_->end.notify_all();
  for (uint64_t serial = begin; serial < end; ++serial) shared_->take_part(serial, 0);
  if (shared_->failed.exchange(false)) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
}

Team& Team::current() {
  static thread_local Team alone(1);
  static thread_local std::unique_ptr<Team> together;
  if (at::in_parallel_region() || at::get_num_threads() < 2) return alone;
  if (together == nullptr || together->threads() != at::get_num_threads()) {
    together = std::make_unique<Team>(at::get_num_threads());
  }
  return *together;
}

}  // namespace draftsmith::model
