#include "data/sharded_corpus.h"

#include <array>
#include <cstdio>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <utility>
#include <vector>

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
  bool merged = false;                        // an earlier run had come to the end but for removing its shards
  int64_t safe = 0;
  std::optional<CorpusWriter> open;

  // Shards are written in order, so the first number that is missing is where the earlier run stopped.
  void find_shards() {
    while (std::filesystem::exists(shard_file(file, shards.size()))) {
      const std::filesystem::path path = shard_file(file, shards.size());
      const Corpus shard(path);
      check_same_job(path, shard.info());
      shards.push_back(path);
      if (!merged) safe += shard.size();
    }
  }

  // A merged corpus says its job; any other file of that name is there to be replaced.
  void find_merged() {
    if (!info.provenance.contains(kJob) || !std::filesystem::exists(file)) return;
    const CorpusInfo found = read_corpus_info(file);
    const auto job = found.provenance.find(kJob);
    if (job == found.provenance.end() || differing(found) != nullptr) return;
    merged = true;
    safe = found.examples;
  }

  bool same_provenance(const CorpusInfo& found) const {
    const auto own = info.provenance.find(kJob);
    if (own == info.provenance.end()) return found.provenance == info.provenance;
    const auto job = found.provenance.find(kJob);
    return job == found.provenance.end() || job->second == own->second;
  }

  // What tells the corpus from one of this job; nullptr for nothing.
  const char* differing(const CorpusInfo& found) const {
    if (found.tokenizer_hash != info.tokenizer_hash) return "tokenizer";
    if (found.vocabulary != info.vocabulary) return "vocabulary";
    return same_provenance(found) ? nullptr : "provenance";
  }

  void check_same_job(const std::filesystem::path& path, const CorpusInfo& found) const {
    const char* differs = differing(found);
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
  impl_->find_merged();
  impl_->find_shards();
}

ShardedCorpusWriter::~ShardedCorpusWriter() = default;

int64_t ShardedCorpusWriter::safe() const {
  return impl_->safe;
}

int64_t ShardedCorpusWriter::done() const {
  return impl_->safe + (impl_->open ? impl_->open->examples() : 0);
}

void ShardedCorpusWriter::read_targets(const std::function<void(std::span<const int32_t>)>& visit) const {
  const auto parts = impl_->merged ? std::vector{impl_->file} : impl_->shards;
  for (const std::filesystem::path& part : parts) {
    const Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) visit(corpus.target(i));
  }
}

void ShardedCorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  if (impl_->merged) throw std::logic_error("an example added to a sharded corpus that is finished");
  if (!impl_->open) impl_->open.emplace(shard_file(impl_->file, impl_->shards.size()), impl_->info);
  impl_->open->add(source, target);
  if (impl_->open->examples() == impl_->shard_examples) impl_->close_shard();
}

void ShardedCorpusWriter::finish(const std::map<std::string, std::string>& extra) {
  if (impl_->open) impl_->close_shard();
  if (!impl_->merged) {
    CorpusInfo info = impl_->info;
    for (const auto& [key, value] : extra) info.provenance[key] = value;
    merge_corpora(impl_->shards, impl_->file, info);
  }
  // From the last to the first: what a kill leaves is found again, and the merged corpus says that it is whole.
  for (const auto& shard : std::views::reverse(impl_->shards)) std::filesystem::remove(shard);
}

}  // namespace draftsmith::data
