// Training data of a router (model/models/router.h): positions of a target's decoding for which a drafter proposed
// tokens, each with the router's inputs and labels. An HDF5 file:
//
//   /router/entropy       float32 [positions]    entropy of the drafter's distribution q, nats
//   /router/probabilities float32 [positions,k]  probabilities of q's k most likely tokens, falling
//   /router/ids           int32   [positions,k]  these tokens; -1 (with probability 0) if q has fewer
//   /router/disagreement  float32 [positions]    TV(q, p) = 1/2 sum |q - p| with the target's p: soft label
//   /router/rejected      int32   [positions]    1: the drafted token was rejected here
//   /router/examples      int32   [positions]    index of the source, rising
//   attributes of /: format "draftsmith router data", format_version, top_k, vocabulary, drafter_hash, positions,
//                    examples; attributes of /provenance: free text pairs
// p and q are whole distributions at temperature 1. A position takes 16 + 8 k bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

inline constexpr Hdf5Format kRouterDataFormat{"draftsmith router data", 1, "the data of a router",
                                              "a stage of kind router-data"};

struct RouterDataInfo {
  int64_t top_k = 0;       // k
  int64_t vocabulary = 0;  // the drafter's vocabulary
  int64_t positions = 0;
  int64_t examples = 0;      // decoded sources
  std::string drafter_hash;  // model::model_hash()
  std::map<std::string, std::string> provenance{};
};

// Positions: one value for each, or k values.
struct RouterRows {
  std::vector<float> entropy;
  std::vector<float> probabilities;  // k
  std::vector<int32_t> ids;          // k
  std::vector<float> disagreement;
  std::vector<int32_t> rejected;
  std::vector<int32_t> examples;

  int64_t size() const { return static_cast<int64_t>(entropy.size()); }
};

// Writes these positions to a file, atomically; counts them itself. Errors: RunError.
void write_router_data(const std::filesystem::path& file, const RouterDataInfo& info, const RouterRows& rows);

// A file in memory. The constructor checks version, shapes, ranges of numbers and ids.
class RouterData {
 public:
  // Errors: UserError that names file and dataset.
  explicit RouterData(const std::filesystem::path& file);
  const RouterDataInfo& info() const { return info_; }
  const RouterRows& rows() const { return rows_; }

 private:
  RouterDataInfo info_;
  RouterRows rows_;
};

// Returns a description of several lines for `draftsmith inspect`.
std::string describe_router_data(const RouterData& data);

}  // namespace draftsmith::data
