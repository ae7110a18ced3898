#!/usr/bin/env python3
"""References for tests/parity/generation_parity_test.cpp: where Transformers ends outputs at stop strings, and what its
samplers make of logits.

parity_generation.py make DIR    writes DIR/tokenizer/, DIR/stops.json and DIR/warps.json
"""

import json
import random

import torch
from transformers.generation import (LogitsProcessorList, MinPLogitsWarper, StopStringCriteria, TemperatureLogitsWarper,
                                     TopKLogitsWarper, TopPLogitsWarper)

from parity_models import run, write_byte_level

WORDS = ("The", "the", "cat", "sat", "on", "a", "mat", "and", "stopped", "stop", "stops", "Käse", "naïve", "日本", "end", "ends",
         "###", "User:", "\n", "\n\n", "1", "23", "...", "😀")
OUTPUTS = 400
WARPED = 60
VOCABULARY = 50


def text_of(choose):
    return "".join(choose.choice((" ", "", " ")) + choose.choice(WORDS) for _ in range(choose.randrange(4, 24)))


def stop_strings_of(text, choose):
    """Pieces of the text, and pieces that it may not have."""
    strings = []
    for _ in range(choose.randrange(1, 4)):
        source = text if choose.random() < 0.4 else text_of(choose)
        first = choose.randrange(len(source))
        strings.append(source[first:first + choose.randrange(2, 12)])
    return strings


def end_of(criteria, ids):
    """The number of tokens with which the output ends, or -1."""
    for count in range(1, len(ids) + 1):
        if criteria(torch.tensor([ids[:count]]), None).item():
            return count
    return -1


def stops(tokenizer, choose):
    cases = []
    while len(cases) < OUTPUTS:
        text = text_of(choose)
        strings = stop_strings_of(text, choose)
        ids = tokenizer(text)["input_ids"]
        cases.append({"strings": strings, "ids": ids, "end": end_of(StopStringCriteria(tokenizer, strings), ids)})
    return cases


def warps(choose):
    cases = []
    for i in range(WARPED):
        case = {"temperature": choose.choice((0.5, 1.0, 1.7)), "top_k": choose.choice((0, 1, 5, 20)),
                "top_p": choose.choice((1.0, 0.9, 0.5)), "min_p": choose.choice((0.0, 0.02, 0.2, 1.0))}
        logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(i), dtype=torch.float64) * 3
        warpers = LogitsProcessorList([TemperatureLogitsWarper(case["temperature"])])
        if case["top_k"]:
            warpers.append(TopKLogitsWarper(case["top_k"]))
        if case["top_p"] < 1:
            warpers.append(TopPLogitsWarper(case["top_p"]))
        if case["min_p"]:
            warpers.append(MinPLogitsWarper(case["min_p"]))
        probabilities = warpers(torch.zeros(1, 1, dtype=torch.long), logits[None].clone())[0].softmax(-1)
        cases.append({**case, "logits": logits.tolist(), "probabilities": probabilities.tolist()})
    return cases


def make(root):
    choose = random.Random(17)
    tokenizer = write_byte_level(root / "tokenizer", [text_of(choose) for _ in range(2000)], 400,
                                 eos_token="<|endoftext|>")
    (root / "stops.json").write_text(json.dumps(stops(tokenizer, choose)))
    (root / "warps.json").write_text(json.dumps(warps(choose)))


if __name__ == "__main__":
    run(make)
