#!/usr/bin/env python3
"""Greedy decoding by Transformers, with and without an assistant: transformers_peer.py JOB.json

JOB names target, drafter, prompts (ids), new_tokens, window and threads. For each line read from standard input,
"alone" or "assisted", all prompts are decoded one after the other; one JSON object with ids and seconds is printed.
"""

import json
import pathlib
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.utils import logging


def load(directory):
    encoder_decoder = AutoConfig.from_pretrained(directory).is_encoder_decoder
    kind = AutoModelForSeq2SeqLM if encoder_decoder else AutoModelForCausalLM
    return kind.from_pretrained(directory, dtype=torch.float32).eval()


def generate(job, target, drafter, prompt):
    """Returns the new ids of a prompt, EOS included. A drafter drafts windows of one length, as Draftsmith's do."""
    tokens = torch.tensor([prompt])
    extra = {}
    if drafter is not None:
        drafter.generation_config.num_assistant_tokens = job["window"]
        drafter.generation_config.num_assistant_tokens_schedule = "constant"
        drafter.generation_config.assistant_confidence_threshold = 0.0
        extra["assistant_model"] = drafter
    skipped = 1 if target.config.is_encoder_decoder else tokens.shape[1]
    with torch.inference_mode():
        output = target.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                 max_new_tokens=job["new_tokens"], **extra)
    return output[0, skipped:].tolist()


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(job["threads"])
    logging.set_verbosity_error()
    target, drafter = load(job["target"]), load(job["drafter"])
    for line in sys.stdin:
        helper = drafter if line.strip() == "assisted" else None
        generate(job, target, helper, job["prompts"][0])  # warms up
        begin = time.perf_counter()
        ids = [generate(job, target, helper, prompt) for prompt in job["prompts"]]
        print(json.dumps({"ids": ids, "seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
