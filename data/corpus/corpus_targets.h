// Reads the target side of a corpus block by block, for passes over corpora of any size.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

class CorpusTargets {
 public:
  // Errors, here and in read(): UserError that names file and dataset if parts of the file do not fit together.
  explicit CorpusTargets(const std::filesystem::path& file);
  const CorpusInfo& info() const { return info_; }
  // Calls visit(target) for every example, in order, and progress(examples) after each block.
  void read(const std::function<void(std::span<const int32_t>)>& visit, const ProgressCallback& progress = {}) const;

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& expected, const std::string& found) const;
  void check_offsets(const std::vector<int64_t>& offsets, int64_t first) const;
  void check_ids(const std::vector<int32_t>& tokens, int64_t first) const;

  Hdf5Reader input_;
  CorpusInfo info_;
};

}  // namespace draftsmith::data
