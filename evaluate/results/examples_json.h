// Keys of example outputs in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/example.h"
#include "evaluate/results/json_io.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, TokenText>& token) {
  io("text", token.text);
  io("origin", token.origin);
}

template <class Io>
void visit(Io& io, Of<Io, ExampleOutput>& output) {
  io("setting", output.setting);
  io("tokens", output.tokens);
}

template <class Io>
void visit(Io& io, Of<Io, Example>& example) {
  io("line", example.line);
  io("source", example.source);
  io("reference", example.reference);
  io("greedy", example.greedy);
  io("outputs", example.outputs);
}

}  // namespace draftsmith::evaluate
