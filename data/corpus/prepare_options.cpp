#include "data/corpus/prepare_options.h"

#include <algorithm>
#include <iterator>

namespace draftsmith::data {

std::vector<std::pair<std::string, int64_t>> PrepareReport::nonzero() const {
  std::vector<std::pair<std::string, int64_t>> list = read.nonzero();
  const std::vector<std::pair<std::string, int64_t>> own = {{"dropped: too long", dropped_long},
                                                            {"dropped: no longer than the prompt", dropped_short},
                                                            {"truncated sources", truncated_sources},
                                                            {"truncated targets", truncated_targets},
                                                            {"split texts", split_texts},
                                                            {"windows of split texts", windows},
                                                            {"references not used", unused_references},
                                                            {"references not used: empty", empty_references},
                                                            {"unknown tokens in sources", unknown_source_tokens},
                                                            {"unknown tokens in targets", unknown_target_tokens}};
  std::copy_if(own.begin(), own.end(), std::back_inserter(list), [](const auto& entry) { return entry.second > 0; });
  return list;
}

Fields<PrepareOptions> PrepareOptions::fields() {
  return Fields<PrepareOptions>("corpus options")
      .add("max_source", &PrepareOptions::max_source, Range{0}, Unit{"tokens"},
           "Longest source, EOS counted; 0: no limit.")
      .add("max_target", &PrepareOptions::max_target, Range{0}, Unit{"tokens"},
           "Longest target, EOS counted; 0: no limit.")
      .add("too_long", &PrepareOptions::too_long, Choices{"error", "drop", "truncate", "split"},
           "Longer examples: stop with an error, drop the example, truncate it (EOS is kept), or split it. Split plain "
           "text becomes windows of equal length, an example each; only the last ends in EOS. A model reads each after "
           "its start token, with positions from 0; with prompt_tokens, after the tokens before the window.")
      .add("references", &PrepareOptions::references, Choices{"first", "all"},
           "Several targets for a source: use the first, or make one example of each.")
      .add("prefix", &PrepareOptions::prefix, "Text before each source, such as \"summarize: \".")
      .add("suffix", &PrepareOptions::suffix,
           "Text after each source, such as \"Summary:\". Tokenized separately, and kept when a source is truncated.")
      .add("prompts", &PrepareOptions::prompts,
           "Decoder-only models: sources are prompts that the targets continue, without EOS.")
      .add("prompt_tokens", &PrepareOptions::prompt_tokens, Range{0}, Unit{"tokens"},
           "Plain text only: the first tokens become the prompt of the rest. 0: no prompts.")
      .add("skip", &PrepareOptions::skip, Range{0}, Unit{"examples"},
           "Examples to skip at the beginning, for instance the examples of another split.")
      .add("limit", &PrepareOptions::limit, Range{0}, Unit{"examples"}, "Maximum examples after skip; 0: all.")
      .add("threads", &PrepareOptions::threads, Range{1, 256}, NoResult{}, "Threads that tokenize.");
}

}  // namespace draftsmith::data
