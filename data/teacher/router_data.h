// What a router is trained on (model/kinds/router.h): positions of a target's decoding that a drafter had proposed
// tokens for, each with what the router may read and what it is to predict. An HDF5 file:
//
//   /router/entropy       float32 [positions]    of the drafter's distribution q, nats
//   /router/probabilities float32 [positions,k]  of q's k most likely tokens, falling
//   /router/ids           int32   [positions,k]  these tokens; -1 (and probability 0) where q has no further one
//   /router/disagreement  float32 [positions]    TV(q, p) = 1/2 sum |q - p|, p the target's: the soft target
//   /router/rejected      int32   [positions]    1: the drafted token was rejected here, in the decoding at hand
//   /router/examples      int32   [positions]    index of the source, rising
//   attributes of /: format "draftsmith router data", format_version, top_k, vocabulary, drafter_hash, positions,
//                    examples; attributes of /provenance: free text pairs
//
// p and q are at temperature 1, nothing cut. 12 + 8 k + 4 bytes a position before compression.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace draftsmith::data {

struct RouterDataInfo {
  static constexpr int64_t kFormatVersion = 1;
  int64_t top_k = 0;       // k
  int64_t vocabulary = 0;  // of the drafter
  int64_t positions = 0;
  int64_t examples = 0;      // sources that were decoded
  std::string drafter_hash;  // model::model_hash()
  std::map<std::string, std::string> provenance{};
};

// Positions, one value each, k each where said so.
struct RouterRows {
  std::vector<float> entropy;
  std::vector<float> probabilities;  // k
  std::vector<int32_t> ids;          // k
  std::vector<float> disagreement;
  std::vector<int32_t> rejected;
  std::vector<int32_t> examples;

  int64_t size() const { return static_cast<int64_t>(entropy.size()); }
};

// Writes a file of these positions, atomically; `info` gives all but their number. Errors: RunError.
void write_router_data(const std::filesystem::path& file, const RouterDataInfo& info, const RouterRows& rows);

// A file, read whole and checked: version, shapes, finite numbers in their ranges, ids of the vocabulary.
class RouterData {
 public:
  // Errors: UserError naming file and dataset.
  explicit RouterData(const std::filesystem::path& file);
  const RouterDataInfo& info() const { return info_; }
  const RouterRows& rows() const { return rows_; }

 private:
  RouterDataInfo info_;
  RouterRows rows_;
};

// Joins parts of one job, in order, into one file. Errors: std::logic_error for parts of another k or vocabulary.
void merge_router_data(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                       const RouterDataInfo& info);

// What a file says of itself, from its attributes alone. Errors as RouterData's.
RouterDataInfo read_router_data_info(const std::filesystem::path& file);
bool is_router_data(const std::filesystem::path& file);
// Several lines, for `draftsmith inspect`.
std::string describe_router_data(const RouterData& data);

}  // namespace draftsmith::data
