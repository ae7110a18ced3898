#!/usr/bin/env python3
"""Greedy decoding by llama.cpp, with and without a draft model: llama_peer.py JOB.json ANSWER.json

JOB names target and drafter (GGUF), prompts (ids), new_tokens, window, threads and eos. ANSWER gets the ids of both
ways, the drafts as (new tokens before it, ids), and the logits that chose the last token of each output.
"""

import json
import pathlib
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

    def __init__(self, model, job):
        self.model, self.job, self.drafts = model, job, []

    def __call__(self, input_ids, /, **_):
        ids = greedy(self.model, input_ids.tolist(), self.job["window"], None)
        self.drafts.append((len(input_ids), ids))
        return numpy.array(ids, dtype=numpy.intc)


def last_logits(model, prompt, output):
    model.reset()
    model.eval(prompt + output[:-1])
    return model.scores[len(prompt) + len(output) - 2].tolist()


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    alone = load(job["target"], job)
    drafter = Drafter(load(job["drafter"], job), job)
    assisted = load(job["target"], job, draft_model=drafter)
    answer = {"alone": [], "assisted": [], "drafts": [], "logits": []}
    for prompt in job["prompts"]:
        drafter.drafts.clear()
        answer["alone"].append(greedy(alone, prompt, job["new_tokens"], job["eos"]))
        answer["assisted"].append(greedy(assisted, prompt, job["new_tokens"], job["eos"]))
        answer["drafts"].append([(length - len(prompt), ids) for length, ids in drafter.drafts])
        answer["logits"].append(last_logits(alone, prompt, answer["alone"][-1]))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
