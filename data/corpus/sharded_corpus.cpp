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

void check_shard(const std::filesystem::path& file, const ShardRange& range, const CorpusInfo& own) {
  const Corpus shard(file);
  if (const auto difference = differing(own, shard.info())) refuse_shard(file, *difference);
  check_shard_range(file, range, shard.info().provenance, shard.size());
}

// A merged corpus names its job. Any other file with the name is replaced.
bool is_merged(const std::filesystem::path& file, const CorpusInfo& own, int64_t examples) {
  if (!own.provenance.contains(kJob)) return false;
  const CorpusInfo found = read_corpus_info(file);
  return !differing(own, found) && found.examples == examples;
}

}  // namespace

ShardedCorpusWriter::ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t examples)
    : info_(std::move(info)),
      shards_(
          file, examples, [this](const auto& shard, const ShardRange& range) { check_shard(shard, range, info_); },
          [&](const auto& merged) { return is_merged(merged, info_, examples); }) {}

void ShardedCorpusWriter::read_targets(const std::function<void(std::span<const int32_t>)>& visit) const {
  for (const std::filesystem::path& part : shards_.parts()) {
    const Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) visit(corpus.target(i));
  }
}

void ShardedCorpusWriter::write(const ShardRange& range, const std::function<void(CorpusWriter&)>& fill) {
  if (shards_.merged()) throw std::logic_error("a shard was added to a finished corpus");
  CorpusInfo info = info_;
  info.provenance = shard_provenance(std::move(info.provenance), range);
  CorpusWriter shard(shards_.place(range), std::move(info));
  fill(shard);
  if (shard.examples() != range.size()) throw std::logic_error("shard " + range.text() + " has other examples");
  shard.finish();
  shards_.add(range);
}

void ShardedCorpusWriter::finish(const std::map<std::string, std::string>& extra) {
  if (!shards_.merged()) {
    shards_.require_complete();
    CorpusInfo info = info_;
    for (const auto& [key, value] : extra) info.provenance[key] = value;
    merge_corpora(shards_.parts(), shards_.file(), info);
  }
  shards_.remove();
}

}  // namespace draftsmith::data
