// Decodes lines of standard input with a target and a Tandem secondary that drafts for it:
//   tandem_example TARGET SECONDARY <lines.txt
#include <exception>
#include <iostream>
#include <string>

#include <draftsmith/infer/loop/processors.h>
#include <draftsmith/infer/session.h>

namespace infer = draftsmith::infer;

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: tandem_example TARGET SECONDARY <lines.txt\n";
    return 2;
  }
  infer::Session session({.target = argv[1], .drafter = argv[2]});
  infer::DecodeOptions options;
  options.method = "tandem-speed";
  options.window = 4;
  infer::Generator generator = session.generator(options);
  const auto& tokenizer = infer::tokenizer_of(session.target(), "name a directory with a tokenizer");
  for (std::string line; std::getline(std::cin, line);) {
    const auto source = infer::source_ids(line, tokenizer, session.info());
    const auto results = generator.generate({&source, 1});
    infer::throw_if_failed(results);
    std::cout << infer::text_of_known(tokenizer, results[0].ids) << "\n";
    std::cerr << results[0].stats.accepted << " of " << results[0].stats.drafted << " drafted tokens accepted\n";
  }
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
