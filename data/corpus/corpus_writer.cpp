#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

constexpr int64_t kAlignment = 8;  // of the widest values, for mapping
constexpr size_t kWrittenAtOnce = size_t{1} << 20;

// One side of a corpus while it grows: contiguous datasets need their sizes when they are created.
struct SpilledSide {
  SpilledSide(std::string group, const std::filesystem::path& folder)
      : name(std::move(group)), tokens(folder / (name + "-tokens")), offsets(folder / (name + "-offsets")) {
    offsets.add(0);
  }

  void add(std::span<const int32_t> row) {
    tokens.add(row);
    offsets.add(tokens.count());
  }

  void write(Hdf5Writer& output) {
    write_column("/" + name + "/tokens", tokens, output);
    write_column("/" + name + "/offsets", offsets, output);
  }

  // Writes in pieces, so that little of the file is in memory.
  template <class T>
  static void write_column(const std::string& name, SpillFile<T>& spilled, Hdf5Writer& output) {
    spilled.close();
    const MappedFile mapping = spilled.map();
    const std::span<const T> values = all_values<T>(mapping);
    const size_t dataset = output.create_plain(name, hdf5_type<T>(), spilled.count());
    for (size_t first = 0; first < values.size(); first += kWrittenAtOnce) {
      output.append(dataset, values.subspan(first, std::min(kWrittenAtOnce, values.size() - first)));
      mapping.forget_pages();
    }
  }

  std::string name;
  SpillFile<int32_t> tokens;
  SpillFile<int64_t> offsets;
};

}  // namespace

struct CorpusWriter::Impl {
  Impl(std::filesystem::path name, CorpusInfo about) : file(std::move(name)), info(std::move(about)) {}

  void check(const std::string& side, std::span<const int32_t> row) const {
    const auto bad = std::find_if(row.begin(), row.end(), [&](int32_t id) { return id < 0 || id >= info.vocabulary; });
    if (bad == row.end()) return;
    throw std::logic_error("corpus " + side + " row " + std::to_string(examples) + ": id " + std::to_string(*bad) +
                           " outside the vocabulary of " + std::to_string(info.vocabulary));
  }

  // Beside the file, where there is room for it.
  static std::filesystem::path made(const std::filesystem::path& folder) {
    make_directories(folder);
    return folder;
  }

  std::filesystem::path file;
  CorpusInfo info;
  AtomicPath spilled{file.string() + ".spilled"};  // never committed, so removed
  SpilledSide source{"source", made(spilled.temporary())};
  SpilledSide target{"target", spilled.temporary()};
  int64_t examples = 0;
};

CorpusWriter::CorpusWriter(const std::filesystem::path& file, CorpusInfo info)
    : impl_(std::make_unique<Impl>(file, std::move(info))) {}

CorpusWriter::~CorpusWriter() = default;

void CorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  impl_->check("source", source);
  impl_->check("target", target);
  impl_->source.add(source);
  impl_->target.add(target);
  ++impl_->examples;
}

void CorpusWriter::set_provenance(const std::string& key, const std::string& value) {
  impl_->info.provenance[key] = value;
}

int64_t CorpusWriter::examples() const {
  return impl_->examples;
}

void CorpusWriter::finish() {
  Hdf5Writer output(impl_->file, kAlignment);
  impl_->source.write(output);
  impl_->target.write(output);
  output.set_attribute("/", "format", "draftsmith corpus");
  output.set_attribute("/", "format_version", CorpusInfo::kFormatVersion);
  output.set_attribute("/", "tokenizer_hash", impl_->info.tokenizer_hash);
  output.set_attribute("/", "vocabulary", impl_->info.vocabulary);
  output.set_attribute("/", "examples", impl_->examples);
  output.set_attribute("/", "source_tokens", impl_->source.tokens.count());
  output.set_attribute("/", "target_tokens", impl_->target.tokens.count());
  for (const auto& [key, value] : impl_->info.provenance) output.set_attribute("/provenance", key, value);
  output.finish();
}

void merge_corpora(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                   const CorpusInfo& info) {
  CorpusWriter writer(file, info);
  for (const std::filesystem::path& part : parts) {
    const Corpus corpus(part);
    if (corpus.info().tokenizer_hash != info.tokenizer_hash || corpus.info().vocabulary != info.vocabulary) {
      throw UserError({.where = part.string(),
                       .what = "made with another tokenizer than the corpus to which it would be added",
                       .expected = "tokenizer " + info.tokenizer_hash,
                       .found = "tokenizer " + corpus.info().tokenizer_hash});
    }
    for (int64_t i = 0; i < corpus.size(); ++i) writer.add(corpus.source(i), corpus.target(i));
  }
  writer.finish();
}

}  // namespace draftsmith::data
