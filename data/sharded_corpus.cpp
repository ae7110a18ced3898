#include "data/sharded_corpus.h"

#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/error.h"

namespace draftsmith::data {

namespace {

std::filesystem::path shard_file(const std::filesystem::path& file, size_t index) {
  std::array<char, 32> suffix{};
  std::snprintf(suffix.data(), suffix.size(), ".shard-%05zu.h5", index);
  return file.parent_path() / (file.stem().string() + suffix.data());
}

}  // namespace

struct ShardedCorpusWriter::Impl {
  std::filesystem::path file;
  CorpusInfo info;
  int64_t shard_examples = 0;
  std::vector<std::filesystem::path> shards;  // whole ones on disk
  int64_t safe = 0;
  std::optional<CorpusWriter> open;

  // Shards are written in order, so the first number that is missing is where the earlier run stopped.
  void find_shards() {
    while (std::filesystem::exists(shard_file(file, shards.size()))) {
      const std::filesystem::path path = shard_file(file, shards.size());
      const Corpus shard(path);
      check_same_job(path, shard.info());
      shards.push_back(path);
      safe += shard.size();
      if (shard.size() < shard_examples) break;  // the last one of a run killed while merging
    }
  }

  void check_same_job(const std::filesystem::path& path, const CorpusInfo& found) const {
    const char* differs = found.tokenizer_hash != info.tokenizer_hash ? "tokenizer"
                          : found.vocabulary != info.vocabulary       ? "vocabulary"
                          : found.provenance != info.provenance       ? "provenance"
                          : found.examples > shard_examples           ? "shard size"
                                                                      : nullptr;
    if (differs == nullptr) return;
    throw UserError({.where = path.string(),
                     .what = std::string("shard of another job: its ") + differs + " differs",
                     .expected = "shards of the job that is being continued",
                     .hint = "remove the shards to begin again, or write to another file"});
  }

  void close_shard() {
    open->finish();
    safe += open->examples();
    open.reset();
    shards.push_back(shard_file(file, shards.size()));
  }
};

ShardedCorpusWriter::ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t shard_examples)
    : impl_(std::make_unique<Impl>()) {
  impl_->file = file;
  impl_->info = std::move(info);
  impl_->shard_examples = shard_examples;
  impl_->find_shards();
}

ShardedCorpusWriter::~ShardedCorpusWriter() = default;

int64_t ShardedCorpusWriter::safe() const {
  return impl_->safe;
}

int64_t ShardedCorpusWriter::done() const {
  return impl_->safe + (impl_->open ? impl_->open->examples() : 0);
}

void ShardedCorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  if (!impl_->open) impl_->open.emplace(shard_file(impl_->file, impl_->shards.size()), impl_->info);
  impl_->open->add(source, target);
  if (impl_->open->examples() == impl_->shard_examples) impl_->close_shard();
}

void ShardedCorpusWriter::finish(const std::map<std::string, std::string>& extra) {
  if (impl_->open) impl_->close_shard();
  CorpusInfo info = impl_->info;
  for (const auto& [key, value] : extra) info.provenance[key] = value;
  merge_corpora(impl_->shards, impl_->file, info);
  for (const std::filesystem::path& shard : impl_->shards) std::filesystem::remove(shard);
}

}  // namespace draftsmith::data
