#include "data/corpus/sharded_corpus.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace draftsmith::data {

ShardedCorpusWriter::ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t examples)
    : info_(std::move(info)), shards_(file, examples, info_.provenance.at(kJob), [](const std::filesystem::path& part) {
        const Corpus corpus(part);
        return Shards::Content{corpus.info().provenance, corpus.size()};
      }) {}

void ShardedCorpusWriter::read_targets(const std::function<void(std::span<const int32_t>)>& visit) const {
  for (const std::filesystem::path& part : shards_.parts()) {
    const Corpus corpus(part);
    for (int64_t i = 0; i < corpus.size(); ++i) visit(corpus.target(i));
  }
}

void ShardedCorpusWriter::write(const ShardRange& range, const std::function<void(CorpusWriter&)>& fill) {
  if (shards_.merged()) throw std::logic_error("a shard was added to a finished corpus");
  CorpusInfo info = info_;
  info.provenance[ShardRange::kKey] = range.text();
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
