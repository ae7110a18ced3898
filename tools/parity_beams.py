#!/usr/bin/env python3
"""References for tests/parity/beam_parity_test.cpp: outputs and scores of Transformers' beam search.

parity_beams.py make DIR            writes DIR/<name>/ (made models, T5 and decoder-only) and DIR/beams.json: a record
                                    for each model and each of SEARCHES
parity_beams.py trained DIR MODEL   writes DIR/trained.json: records of a trained directory, T5 or decoder-only, whose
                                    inputs are random ids
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers import DynamicCache, EncoderDecoderCache
from transformers.utils import logging

import parity_decoder_only
import parity_t5

LENGTHS = (1, 7, 18)
INPUTS = 12  # of each length
MODELS = {"t5_v1_0": parity_t5, "mt5": parity_t5, "llama3": parity_decoder_only, "gpt2": parity_decoder_only,
          "bloom": parity_decoder_only}
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


def until_eos(row, eos):
    return row[:row.index(eos) + 1] if eos in row else row


def search(model, inputs, settings, new_tokens):
    """Outputs of each input, best first, and their scores. Inputs of one length go together."""
    outputs, scores = [None] * len(inputs), [None] * len(inputs)
    count = settings.get("num_return_sequences", 1)
    for length in sorted({len(one) for one in inputs}):
        chosen = [i for i, one in enumerate(inputs) if len(one) == length]
        tokens = torch.tensor([inputs[i] for i in chosen])
        extra = {}
        if model.config.is_encoder_decoder:  # 5.23 builds a cache with as many layers as the encoder has
            extra["past_key_values"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
        found = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new_tokens,
                               do_sample=False, return_dict_in_generate=True, output_scores=True, **settings, **extra)
        skipped = 1 if model.config.is_encoder_decoder else length
        rows = [until_eos(row, model.config.eos_token_id) for row in found.sequences[:, skipped:].tolist()]
        for place, i in enumerate(chosen):
            own = slice(place * count, (place + 1) * count)
            outputs[i] = rows[own]
            scores[i] = found.sequences_scores[own].tolist()
    return outputs, scores


def records(name, model, inputs, new_tokens):
    made = []
    for settings in SEARCHES:
        with torch.no_grad():
            outputs, scores = search(model, inputs, settings, new_tokens)
        made.append({"model": name, "settings": settings, "new_tokens": new_tokens, "sources": inputs,
                     "outputs": outputs, "scores": scores})
    return made


def make(root):
    made = []
    for name, maker in MODELS.items():
        config = maker.configurations()[name]
        model = maker.make_model(name, config)
        model.save_pretrained(root / name)
        made += records(name, model, inputs_of(config.vocab_size), parity_t5.NEW_TOKENS)
    (root / "beams.json").write_text(json.dumps(made))


def trained(root, directory):
    encodes = AutoConfig.from_pretrained(directory).is_encoder_decoder
    kind = AutoModelForSeq2SeqLM if encodes else AutoModelForCausalLM
    model = kind.from_pretrained(directory).eval()
    inputs = inputs_of(model.config.vocab_size)
    (root / "trained.json").write_text(json.dumps(records(str(directory), model, inputs, 40)))


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        make(root)
    elif command == "trained":
        trained(root, Path(sys.argv[3]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
