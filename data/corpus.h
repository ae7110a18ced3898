// A tokenised corpus: an HDF5 file of ragged /source and /target token rows, with provenance in its attributes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace draftsmith::data {

// What a corpus says of itself. `provenance` holds free text pairs: hashes of the text files, teacher directory, policies
// and what they dropped.
struct CorpusInfo {
  int64_t format_version = 1;
  std::string tokenizer_hash;
  int64_t vocabulary = 0;
  int64_t examples = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  std::map<std::string, std::string> provenance;
};

// Writes a corpus example by example in bounded memory. Nothing appears under the final name before finish().
class CorpusWriter {
 public:
  CorpusWriter(const std::filesystem::path& file, CorpusInfo info);
  ~CorpusWriter();
  // Token rows as the model sees them: EOS included. Ids must lie in [0, vocabulary).
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Flushes, writes counts, syncs and renames. Provenance added before this is stored.
  void set_provenance(const std::string& key, const std::string& value);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads a corpus. The constructor checks version, shapes, offsets and id ranges before anything is used.
// Random access is by example; tokens are held in memory decoded (int32).
class Corpus {
 public:
  explicit Corpus(const std::filesystem::path& file);
  ~Corpus();
  Corpus(Corpus&&) noexcept;
  const CorpusInfo& info() const;
  int64_t size() const;
  std::span<const int32_t> source(int64_t example) const;
  std::span<const int32_t> target(int64_t example) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith::data
