#!/usr/bin/env python3
"""References for tests/parity/beam_parity_test.cpp: outputs and scores of Transformers' beam search.

parity_beams.py make DIR            writes DIR/<name>/ (made models, T5 and decoder-only) and DIR/beams.json: a record
                                    for each model and each of SEARCHES
parity_beams.py trained DIR MODEL   writes DIR/trained.json: records of a trained directory, T5 or decoder-only, whose
                                    inputs are random ids
"""

import json

import torch
from transformers import AutoConfig

from parity_models import CONFIGURATIONS, NEW_TOKENS, class_of, generate, make_model, run

LENGTHS = (1, 7, 18)
INPUTS = 12  # of each length
MODELS = ("t5_v1_0", "mt5", "llama3", "gpt2", "bloom")
SEARCHES = [
    {"num_beams": 4, "num_return_sequences": 4},
    {"num_beams": 4, "length_penalty": 0.6, "num_return_sequences": 2},
    {"num_beams": 2, "length_penalty": 2.0, "early_stopping": True, "num_return_sequences": 2},
    {"num_beams": 5, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 3, "length_penalty": 1.5, "early_stopping": "never", "num_return_sequences": 3},
    {"num_beams": 6, "length_penalty": -0.5, "num_return_sequences": 6},
    {"num_beams": 4, "num_return_sequences": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2,
     "min_new_tokens": 4},
]


def inputs_of(vocabulary):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(2, vocabulary, (length,), generator=generator).tolist() for _ in range(INPUTS)
            for length in LENGTHS]


def records(name, model, inputs, new_tokens):
    made = []
    for settings in SEARCHES:
        outputs, scores = generate(model, inputs, new_tokens, **settings)
        made.append({"model": name, "settings": settings, "new_tokens": new_tokens, "sources": inputs,
                     "outputs": outputs, "scores": scores})
    return made


def make(root):
    made = []
    for name in MODELS:
        model = make_model(name)
        model.save_pretrained(root / name)
        made += records(name, model, inputs_of(CONFIGURATIONS[name].vocab_size), NEW_TOKENS)
    (root / "beams.json").write_text(json.dumps(made))


def trained(root, directory):
    model = class_of(AutoConfig.from_pretrained(directory)).from_pretrained(directory).eval()
    inputs = inputs_of(model.config.vocab_size)
    (root / "trained.json").write_text(json.dumps(records(str(directory), model, inputs, 40)))


if __name__ == "__main__":
    run(make, trained=trained)
