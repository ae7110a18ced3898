// A tokenised corpus: an HDF5 file of ragged /source and /target token rows, with provenance in its attributes.
//
//   /source/tokens  int32 [source tokens]      row i is tokens[offsets[i] .. offsets[i+1])
//   /source/offsets int64 [examples + 1]
//   /target/tokens, /target/offsets            the same
//   attributes of /: format "draftsmith corpus", format_version, tokenizer_hash, vocabulary, examples, source_tokens,
//                    target_tokens; attributes of /provenance: free text pairs
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace draftsmith::data {

// What a corpus says of itself. `provenance` holds free text pairs: hashes of the text files, teacher directory,
// policies and what they dropped.
struct CorpusInfo {
  static constexpr int64_t kFormatVersion = 1;
  int64_t format_version = kFormatVersion;
  std::string tokenizer_hash{};
  int64_t vocabulary = 0;
  int64_t examples = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  std::map<std::string, std::string> provenance{};
};

// Whether a corpus's sources are prompts without EOS (data/corpus/prepare.h), or it has none.
bool continues_prompts(const CorpusInfo& info);

// Writes a corpus example by example in bounded memory. Nothing appears under the final name before finish().
class CorpusWriter {
 public:
  // `info` gives tokenizer hash, vocabulary and provenance; counts are the writer's own. Errors: RunError.
  CorpusWriter(const std::filesystem::path& file, CorpusInfo info);
  ~CorpusWriter();  // without finish(): leaves no file
  // Token rows as the model sees them: EOS included. Ids must lie in [0, vocabulary).
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Stored with the file; replaces what `info` said under that key.
  void set_provenance(const std::string& key, const std::string& value);
  // Flushes, writes counts, syncs and renames.
  void finish();
  int64_t examples() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads a corpus. The constructor checks version, shapes, offsets and id ranges before anything is used.
// Random access is by example; tokens are held in memory decoded (int32).
class Corpus {
 public:
  // Errors: UserError naming file and dataset.
  explicit Corpus(const std::filesystem::path& file);
  ~Corpus();
  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  const CorpusInfo& info() const;
  int64_t size() const;
  std::span<const int32_t> source(int64_t example) const;
  std::span<const int32_t> target(int64_t example) const;
  const std::filesystem::path& file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a corpus file says of itself, from its attributes alone: cheap for corpora of any size.
CorpusInfo read_corpus_info(const std::filesystem::path& file);

// Copies several corpora of one tokenizer into one, in order, with `info`'s provenance; memory is that of the largest
// part. Errors: a part with another tokenizer hash or vocabulary than `info`.
void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info);

}  // namespace draftsmith::data
