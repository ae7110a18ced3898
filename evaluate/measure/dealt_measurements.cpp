#include "evaluate/measure/dealt_measurements.h"

#include <algorithm>

#include "base/device.h"
#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "distributed/dealing.h"
#include "evaluate/measure/failures.h"

namespace draftsmith::evaluate {
namespace {

// Returns the chains with a measurement that the leader's store lacks.
std::vector<size_t> missing_chains(const std::vector<Chain>& chains, const MeasurementStore& store, World& world) {
  std::vector<size_t> missing;
  for (size_t i = 0; i < chains.size(); ++i) {
    const bool whole = std::ranges::all_of(chains[i], [&](const auto& one) { return store.has(one.name); });
    if (!whole) missing.push_back(i);
  }
  const std::string told = world.from_leader("finding the missing measurements", nlohmann::json(missing).dump());
  return nlohmann::json::parse(told).get<std::vector<size_t>>();
}

bool failed(const Measurement& one, const MeasurementStore& store) {
  return !one.owner.empty() && store.failure(one.owner);
}

// Adds the measurement to the store, or its owner's failure.
void add_measured(const Measurement& one, MeasurementStore& store) {
  nlohmann::json measured;
  const auto measure = [&] { measured = one.measure(); };
  if (one.owner.empty()) {
    measure();
  } else if (const auto message = failure_of(measure)) {
    log_warning("{} failed: {}", one.owner, *message);
    return store.add_failure(one.owner, *message);
  }
  store.add(one.name, measured);
}

void require_all(const std::vector<Chain>& chains, const MeasurementStore& store) {
  for (const Chain& chain : chains) {
    for (const Measurement& one : chain) {
      if (store.has(one.name) || failed(one, store)) continue;
      throw RunError({.what = "a measurement of another process did not arrive: " + one.name,
                      .expected = "output files that all processes see at once",
                      .hint = "is the output directory on a file system that shows other machines' files late?"});
    }
  }
}

}  // namespace

void measure_missing(const DealtMeasurements& dealt, MeasurementStore& store, const SuiteContext& context) {
  World& world = *context.world;
  const std::vector<size_t> missing = missing_chains(dealt.chains, store, world);
  if (missing.empty()) return;
  int64_t total = 0, done = 0;
  std::vector<int64_t> sizes;  // of missing measurements
  for (const Chain& chain : dealt.chains) {
    for (const Measurement& one : chain) {
      total += one.size;
      if (store.has(one.name))
        done += one.size;
      else
        sizes.push_back(one.size);
    }
  }
  Progress progress({.style = progress_style(context.quiet || dealt.title.empty()),
                     .title = dealt.title,
                     .unit = dealt.unit,
                     .total = total,
                     .done_before = done});
  const std::string what = dealt.title.empty() ? "measurements" : dealt.title;
  SharedProgress shared(world, what, sizes, progress);
  const ThreadCount threads(world.is_alone() ? 0 : context.shared_threads);
  deal_out(world, what, std::ssize(missing), [&](int64_t number) {
    for (const Measurement& one : dealt.chains[missing[static_cast<size_t>(number)]]) {
      if (store.has(one.name)) continue;
      throw_if_stop_requested(kHowToGoOn);
      if (!failed(one, store)) add_measured(one, store);
      shared.finished_one();
    }
  });
  shared.finished_all();
  progress.finish();
  store.read_others();
  require_all(dealt.chains, store);
}

}  // namespace draftsmith::evaluate
