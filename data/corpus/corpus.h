// A tokenised corpus: an HDF5 file of ragged /source and /target token rows, with provenance in its attributes.
// Its arrays are contiguous and uncompressed, so that readers map them: several processes share one copy, which the
// system drops and reads again when memory gets scarce.
//
//   /source/tokens  int32 [source tokens]      row i is tokens[offsets[i] .. offsets[i+1])
//   /source/offsets int64 [examples + 1]
//   /target/tokens, /target/offsets            likewise
//   attributes of /: format "draftsmith corpus", format_version, tokenizer_hash, vocabulary, examples, source_tokens,
//                    target_tokens; attributes of /provenance: free text pairs
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace draftsmith::data {

// The attributes of a corpus. `provenance` holds free text pairs: hashes of the text files, the teacher's directory,
// policies and the counts of lines that they dropped.
struct CorpusInfo {
  std::string tokenizer_hash{};
  int64_t vocabulary = 0;
  int64_t examples = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  std::map<std::string, std::string> provenance{};
};

// Returns whether the sources are prompts without EOS (data/corpus/prepare.h) or empty.
bool continues_prompts(const CorpusInfo& info);

// Writes a corpus, one example after the other, in bounded memory: rows wait in a folder beside the file, so that
// twice its size is needed on the disk. The file has its final name only after finish().
class CorpusWriter {
 public:
  // Takes tokenizer hash, vocabulary and provenance from `info`; the writer counts the rest. Errors: RunError.
  CorpusWriter(const std::filesystem::path& file, CorpusInfo info);
  ~CorpusWriter();  // removes what was written if finish() was not called
  // Adds an example as the model sees it, EOS included. Ids must lie in [0, vocabulary).
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Sets a pair of the provenance; replaces the value that `info` has for the key.
  void set_provenance(const std::string& key, const std::string& value);
  // Flushes, writes the counts, syncs to disk and renames the file.
  void finish();
  int64_t examples() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An open corpus with random access by example, mapped into memory. The constructor checks version, shapes, offsets and
// ids. The file must not change meanwhile.
class Corpus {
 public:
  // Errors: UserError that names file and dataset.
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

// Returns the attributes of a corpus file without reading its tokens.
CorpusInfo read_corpus_info(const std::filesystem::path& file);

// Joins corpora of one tokenizer into one, in order, with the provenance of `info`. Holds one part in memory at a time.
// Errors: UserError for a part whose tokenizer hash or vocabulary differs from `info`.
void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info);

// Receives the number of examples processed since the last call.
using ProgressCallback = std::function<void(int64_t)>;

class Tokenizer;

// Returns attributes, provenance, length histograms and the first examples as lines of text; without a tokenizer, their
// ids. Errors: UserError if the corpus was made with another tokenizer.
std::string describe_corpus(const Corpus& corpus, const Tokenizer* tokenizer, int64_t examples = 3);

}  // namespace draftsmith::data
