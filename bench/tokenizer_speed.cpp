// How fast text becomes token ids, beside Hugging Face `tokenizers` in turns, on one thread each: the issue asks for
// half its speed. Run: build/release/bench/bench_tokenizer_speed [TEXT_FILE...]
// (needs .venv-peers; the files are those of ../shared/data by default)
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/files.h"
#include "base/timing.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace {

using namespace draftsmith;
namespace fs = std::filesystem;

const std::string kTool = "OMP_NUM_THREADS=1 .venv-peers/bin/python tools/parity_tokenizers.py ";

struct Timing {
  double seconds = 0;
  int64_t tokens = 0;
};

void run_tool(const std::string& arguments) {
  if (std::system((kTool + arguments).c_str()) != 0) {
    throw RunError({.where = "tools/parity_tokenizers.py", .what = "failed", .hint = "run from the repository's root"});
  }
}

std::vector<std::string> read_lines(const fs::path& file) {
  data::LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

// The best of three rounds with a tokenizer loaded anew, as the tool does it.
Timing ours(const fs::path& directory, const std::vector<std::string>& lines) {
  const auto tokenizer = data::load_tokenizer(directory);
  Timing best{1e9, 0};
  for (int round = 0; round < 3; ++round) {
    const Stopwatch watch;
    int64_t tokens = 0;
    for (const std::string& line : lines) tokens += static_cast<int64_t>(tokenizer->encode(line).size());
    best = {std::min(best.seconds, watch.seconds()), tokens};
  }
  return best;
}

Timing theirs(const fs::path& directory, const fs::path& file) {
  const TemporaryDirectory output;
  run_tool(fmt::format("speed '{}' '{}' > '{}'", directory.string(), file.string(), (output / "out").string()));
  Timing timing;
  std::ifstream(output / "out") >> timing.seconds >> timing.tokens;
  return timing;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files(argv + 1, argv + argc);
  if (files.empty()) {
    for (const char* name : {"wikitext2_raw/wiki.valid.raw", "tinystories/tinystories_2MiB_eot.txt",
                             "multi30k/train.de", "dialogsum/dialogsum.dev.jsonl"}) {
      files.push_back(fs::path("../shared/data") / name);
    }
  }
  const TemporaryDirectory root;
  run_tool("bench '" + root.path().string() + "'");
  for (const char* family : {"gpt2", "llama3"}) {
    for (const fs::path& file : files) {
      const auto megabytes = static_cast<double>(fs::file_size(file)) / 1e6;
      const Timing peer = theirs(root / family, file);
      const Timing own = ours(root / family, read_lines(file));
      fmt::print("{} {}: draftsmith {:.1f} MB/s ({} tokens), tokenizers {:.1f} MB/s ({} tokens), ratio {:.2f}\n",
                 family, file.filename().string(), megabytes / own.seconds, own.tokens, megabytes / peer.seconds,
                 peer.tokens, peer.seconds / own.seconds);
    }
  }
  return 0;
}
