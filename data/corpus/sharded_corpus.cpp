#include "data/corpus/sharded_corpus.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace draftsmith::data {

namespace {

// Returns the difference between a corpus and the job that `own` describes, if there is one.
std::optional<ShardDifference> differing(const CorpusInfo& own, const CorpusInfo& found) {
  if (found.tokenizer_hash != own.tokenizer_hash) {
    return ShardDifference{"tokenizer", own.tokenizer_hash, found.tokenizer_hash};
  }
  if (found.vocabulary != own.vocabulary) {
    return ShardDifference{"vocabulary", std::to_string(own.vocabulary), std::to_string(found.vocabulary)};
  }
  if (same_job(own.provenance, found.provenance)) return std::nullopt;
  return job_difference(own.provenance, found.provenance);
}

int64_t check_shard(const std::filesystem::path& file, const CorpusInfo& own) {
  const Corpus shard(file);
  if (const auto difference = differing(own, shard.info())) refuse_shard(file, *difference);
  return shard.size();
}

// A merged corpus names its job. Any other file with the name is replaced.
int64_t check_merged(const std::filesystem::path& file, const CorpusInfo& own) {
  if (!own.provenance.contains(kJob)) return -1;
  const CorpusInfo found = read_corpus_info(file);
  return !found.provenance.contains(kJob) || differing(own, found) ? -1 : found.examples;
}

}  // namespace

struct ShardedCorpusWriter::Impl {
  CorpusInfo info;
  int64_t shard_examples = 0;
  Shards shards;
  std::optional<CorpusWriter> open{};

  void close_shard() {
    open->finish();
    shards.add(open->examples());
    open.reset();
  }
};

ShardedCorpusWriter::ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t shard_examples) {
  Shards shards(
      file, [&](const auto& shard) { return check_shard(shard, info); },
      [&](const auto& merged) { return check_merged(merged, info); });
  impl_ = std::make_unique<Impl>(std::move(info), shard_examples, std::move(shards));
}

ShardedCorpusWriter::~ShardedCorpusWriter() = default;

int64_t ShardedCorpusWriter::safe() const {
  return impl_->shards.safe();
}

int64_t ShardedCorpusWriter::done() const {
  return safe() + (impl_->open ? impl_->open->examples() : 0);
}

void ShardedCorpusWriter::read_targets(const std::function<void(std::span<const int32_t>)>& visit) const {
  for (const std::filesystem::path& part : impl_->shards.parts()) {
    const Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) visit(corpus.target(i));
  }
}

void ShardedCorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  if (impl_->shards.merged()) throw std::logic_error("an example was added to a finished sharded corpus");
  if (!impl_->open) impl_->open.emplace(impl_->shards.next(), impl_->info);
  impl_->open->add(source, target);
  if (impl_->open->examples() == impl_->shard_examples) impl_->close_shard();
}

void ShardedCorpusWriter::finish(const std::map<std::string, std::string>& extra) {
  if (impl_->open) impl_->close_shard();
  if (!impl_->shards.merged()) {
    CorpusInfo info = impl_->info;
    for (const auto& [key, value] : extra) info.provenance[key] = value;
    merge_corpora(impl_->shards.parts(), impl_->shards.file(), info);
  }
  impl_->shards.remove();
}

}  // namespace draftsmith::data
