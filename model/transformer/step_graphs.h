// The recorded steps of one decode state: from the second step of a kind on, a step is one launch
// (base/device_graph.h).
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/device_graph.h"
#include "model/transformer/language_model.h"

namespace draftsmith::model {

// Kind of step: steps of one state and kind are alike. Lengths and places of rows may differ: recorded work reads them
// on the device.
struct StepKind {
  int64_t rows = 0;
  int64_t tokens = 0;
  Logits logits = Logits::kAll;
  std::vector<int64_t> hidden_layers;

  auto operator<=>(const StepKind&) const = default;
};

struct StepGraph {
  at::Tensor tokens;  // int64 [B,L] that the work reads
  at::Tensor places;  // DecoderState::packed_places() that the work reads
  StepOutput output;  // that it writes
  std::unique_ptr<RecordedWork> work;
  uint64_t used = 0;  // when it was needed last
};

class StepGraphs {
 public:
  // Returns the graph of a kind, perhaps not recorded yet; null on the first call: recording a kind that comes once
  // costs more than it saves. Of too many kinds the one that was needed least recently is forgotten: each has memory
  // for its output.
  StepGraph* find(const StepKind& kind) {
    const auto [place, first] = graphs_.try_emplace(kind);
    place->second.used = ++calls_;
    if (std::ssize(graphs_) > kMostKinds) {
      graphs_.erase(std::ranges::min_element(
          graphs_, [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
    return first ? nullptr : &place->second;
  }
  // Returns the memory that the graphs share: a step's output lives until the state's next step.
  WorkMemory& memory() { return memory_; }
  // Forgets what was recorded. Needed when tensors are replaced that the work reads.
  void clear() { graphs_.clear(); }

 private:
  static constexpr int64_t kMostKinds = 32;

  WorkMemory memory_;
  uint64_t calls_ = 0;
  std::map<StepKind, StepGraph> graphs_;
};

}  // namespace draftsmith::model
