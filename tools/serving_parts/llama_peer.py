#!/usr/bin/env python3
"""Greedy decoding by llama.cpp, alone and with a draft model. Reads a job from the standard input, in JSON: target and
drafter (GGUF), prompts (ids), new_tokens, window, threads and eos. Prints the ids of both ways."""

import json
import sys

import llama_cpp
import numpy
from llama_cpp.llama_speculative import LlamaDraftModel

FP32 = 0  # ggml's number of the type; caches are fp16 otherwise
CONTEXT = 512


def load(path, job, **more):
    return llama_cpp.Llama(path, n_ctx=CONTEXT, n_threads=job["threads"], n_threads_batch=job["threads"],
                           logits_all=True, type_k=FP32, type_v=FP32, verbose=False, **more)


def greedy(model, prompt, count, eos):
    """Returns at most so many new ids, EOS included."""
    ids = []
    for token in model.generate(prompt, temp=0.0, repeat_penalty=1.0):
        ids.append(int(token))
        if token == eos or len(ids) == count:
            break
    return ids


class Drafter(LlamaDraftModel):
    """A second model as the draft model, which the wrapper of Python asks for a window of tokens."""

    def __init__(self, model, window):
        self.model, self.window = model, window

    def __call__(self, input_ids, /, **_):
        return numpy.array(greedy(self.model, input_ids.tolist(), self.window, None), dtype=numpy.intc)


def main():
    job = json.load(sys.stdin)
    models = {"alone": load(job["target"], job), "assisted": load(
        job["target"], job, draft_model=Drafter(load(job["drafter"], job), job["window"]))}
    print(json.dumps({name: [greedy(model, prompt, job["new_tokens"], job["eos"]) for prompt in job["prompts"]]
                      for name, model in models.items()}))


if __name__ == "__main__":
    main()
