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
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/hdf5/hdf5.h"

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
// Returns whether a corpus is plain text: no example has a source.
bool is_plain_text(const CorpusInfo& info);

// Writes a corpus, one example after the other, in bounded memory: rows wait in a folder beside the file, so that
// twice its size is needed on the disk. The file has its final name only after finish().
class CorpusWriter {
 public:
  // Takes tokenizer hash, vocabulary and provenance from `info`; the writer counts the rest. Errors: RunError.
  CorpusWriter(const std::filesystem::path& file, CorpusInfo info);
  // Adds an example as the model sees it, EOS included. Ids must lie in [0, vocabulary).
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Sets a pair of the provenance; replaces the value that `info` has for the key.
  void set_provenance(const std::string& key, const std::string& value);
  // Flushes, writes the counts, syncs to disk and renames the file.
  void finish();
  int64_t examples() const { return examples_; }

 private:
  // One side while it grows: datasets need their sizes when they are created.
  struct Side {
    explicit Side(const std::filesystem::path& folder);
    SpillFile<int32_t> tokens;
    SpillFile<int64_t> offsets;
  };
  void add(Side& side, std::span<const int32_t> row);

  std::filesystem::path file_;
  CorpusInfo info_;
  AtomicPath spilled_;  // never committed, so removed; beside the file, where there is room for it
  Side source_;
  Side target_;
  int64_t examples_ = 0;
};

// An open corpus with random access by example, mapped into memory. The constructor checks version, shapes, offsets and
// ids. The file must not change meanwhile.
class Corpus {
 public:
  // Errors: UserError that names file and dataset.
  explicit Corpus(const std::filesystem::path& file);
  Corpus(Corpus&&) = default;
  Corpus& operator=(Corpus&&) = default;
  const CorpusInfo& info() const { return info_; }
  int64_t size() const { return info_.examples; }
  std::span<const int32_t> source(int64_t example) const { return source_.row(example); }
  std::span<const int32_t> target(int64_t example) const { return target_.row(example); }
  const std::filesystem::path& file() const { return file_; }

 private:
  struct Side {
    std::span<const int32_t> row(int64_t example) const;
    std::span<const int32_t> tokens;
    std::span<const int64_t> offsets;
  };
  Side side(const Hdf5Reader& input, const std::string& group, int64_t token_count) const;

  std::filesystem::path file_;
  CorpusInfo info_;
  MappedFile mapping_;
  Side source_;
  Side target_;
};

// Returns the attributes of a corpus file without reading its tokens.
CorpusInfo read_corpus_info(const std::filesystem::path& file);

// Adds a problem unless the corpus has what a model reads: an encoder sources, a decoder-only model prompts or plain
// text.
void check_form(const Corpus& corpus, bool encoder_decoder, Problems& problems);

// Joins corpora of one tokenizer into one, in order, with the provenance of `info`.
void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info);

// Receives the number of examples processed since the last call.
using ProgressCallback = std::function<void(int64_t)>;

class Tokenizer;

// Returns attributes, provenance, lengths and the first examples as lines of text; without a tokenizer, their
// ids. Errors: UserError if the corpus was made with another tokenizer.
std::string describe_corpus(const Corpus& corpus, const Tokenizer* tokenizer, int64_t examples = 3);

}  // namespace draftsmith::data
