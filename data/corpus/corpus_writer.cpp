#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

// One side of the file.
struct SideNames {
  std::string name;
  size_t tokens = 0;
  size_t offsets = 0;
  int64_t count = 0;
};

}  // namespace

struct CorpusWriter::Impl {
  Impl(const std::filesystem::path& file, CorpusInfo about) : output(file), info(std::move(about)) {
    for (SideNames* side : {&source, &target}) {
      side->tokens = output.create("/" + side->name + "/tokens", Hdf5Type::kInt32);
      side->offsets = output.create("/" + side->name + "/offsets", Hdf5Type::kInt64);
      append_offset(*side);
    }
  }

  void append_offset(const SideNames& side) { output.append(side.offsets, std::span<const int64_t>(&side.count, 1)); }

  void check(const SideNames& side, std::span<const int32_t> row) const {
    const auto bad = std::find_if(row.begin(), row.end(), [&](int32_t id) { return id < 0 || id >= info.vocabulary; });
    if (bad == row.end()) return;
    throw std::logic_error("corpus " + side.name + " row " + std::to_string(examples) + ": id " + std::to_string(*bad) +
                           " outside the vocabulary of " + std::to_string(info.vocabulary));
  }

  void add(SideNames& side, std::span<const int32_t> row) {
    output.append(side.tokens, row);
    side.count += static_cast<int64_t>(row.size());
    append_offset(side);
  }

  Hdf5Writer output;
  CorpusInfo info;
  SideNames source{.name = "source"};
  SideNames target{.name = "target"};
  int64_t examples = 0;
};

CorpusWriter::CorpusWriter(const std::filesystem::path& file, CorpusInfo info)
    : impl_(std::make_unique<Impl>(file, std::move(info))) {}

CorpusWriter::~CorpusWriter() = default;

void CorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  impl_->check(impl_->source, source);
  impl_->check(impl_->target, target);
  impl_->add(impl_->source, source);
  impl_->add(impl_->target, target);
  ++impl_->examples;
}

void CorpusWriter::set_provenance(const std::string& key, const std::string& value) {
  impl_->info.provenance[key] = value;
}

int64_t CorpusWriter::examples() const {
  return impl_->examples;
}

void CorpusWriter::finish() {
  Hdf5Writer& output = impl_->output;
  output.set_attribute("/", "format", "draftsmith corpus");
  output.set_attribute("/", "format_version", CorpusInfo::kFormatVersion);
  output.set_attribute("/", "tokenizer_hash", impl_->info.tokenizer_hash);
  output.set_attribute("/", "vocabulary", impl_->info.vocabulary);
  output.set_attribute("/", "examples", impl_->examples);
  output.set_attribute("/", "source_tokens", impl_->source.count);
  output.set_attribute("/", "target_tokens", impl_->target.count);
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
