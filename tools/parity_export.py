#!/usr/bin/env python3
"""References for tests/parity: exported drafters, loaded and run by Transformers.

parity_export.py make DIR   writes DIR/<name>/ (a target's directory) and DIR/<name>.greedy.json (inputs and their greedy
                            outputs)
parity_export.py check DIR  loads every drafter DIR/saved/<name>/: alone it must generate the outputs of
                            DIR/<name>.ours.json, and as assistant_model the target must generate its own; the model card
                            must be one that the Hub reads. Prints one line a problem and exits 1 when there is any
"""

import json
import sys
from pathlib import Path

import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GenerationConfig
from transformers.utils import logging

import parity_decoder_only
import parity_t5
from parity_t5 import EOS, NEW_TOKENS, check, greedy_sources

INPUTS = 40
GENERATION = ["eos_token_id", "pad_token_id", "bos_token_id"]
TARGETS = {"t5_v1_1": parity_t5, "llama3": parity_decoder_only, "gpt2": parity_decoder_only}


def make(root):
    for name, family in TARGETS.items():
        model = family.make_model(name, family.configurations()[name])
        model.save_pretrained(root / name)
        inputs = greedy_sources(model.config.vocab_size)[:INPUTS]
        with torch.no_grad():
            outputs = family.greedy(model, inputs)
        (root / f"{name}.greedy.json").write_text(json.dumps({"sources": inputs, "outputs": outputs}))


def load(name, directory):
    kind = AutoModelForSeq2SeqLM if TARGETS[name] is parity_t5 else AutoModelForCausalLM
    model, info = kind.from_pretrained(directory, output_loading_info=True)
    problems = [f"{directory}: {key} {sorted(map(str, info[key]))}"
                for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]]
    return model.eval(), problems


def assisted(target, drafter, tokens):
    """Greedy outputs with an assistant, new tokens only, EOS included."""
    generated = target.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), assistant_model=drafter,
                                max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
    row = generated[1 if target.config.is_encoder_decoder else tokens.shape[1]:]
    return row[:row.index(EOS) + 1] if EOS in row else row


def check_directory(root, directory):
    name = directory.name
    drafter, problems = load(name, directory)
    target, _ = load(name, root / name)
    wanted = json.loads((root / f"{name}.greedy.json").read_text())
    ours = json.loads((root / f"{name}.ours.json").read_text())
    if len(ours) != INPUTS or ours == wanted["outputs"]:
        problems.append(f"{name}: the drafter should have {INPUTS} outputs, other ones than its target")
    with torch.no_grad():
        if TARGETS[name].greedy(drafter, wanted["sources"]) != ours:
            problems.append(f"{name}: alone it generates other ids than Draftsmith with the same model")
        outputs = [assisted(target, drafter, torch.tensor([source])) for source in wanted["sources"]]
    wrong = sum(a != b for a, b in zip(outputs, wanted["outputs"]))
    if wrong:
        problems.append(f"{name}: {wrong} of {INPUTS} outputs differ with it as assistant_model")
    return problems + card_problems(directory) + metadata_problems(root, directory)


def card_problems(directory):
    """What the Hub's own library misses in the card's front matter."""
    data = ModelCard.load(directory / "README.md").data
    if data.library_name == "transformers" and "speculative-decoding" in data.tags:
        return []
    return [f"{directory.name}: the card's library is {data.library_name}, its tags are {data.tags}"]


def metadata_problems(root, directory):
    """Generation settings that Transformers reads other than the target's, and weights that do not say their kind."""
    ours, target = (GenerationConfig.from_pretrained(folder) for folder in (directory, root / directory.name))
    # A decoder's first token is in its prompt, and Transformers asks no setting for it.
    keys = GENERATION + ["decoder_start_token_id"] * (TARGETS[directory.name] is parity_t5)
    problems = [f"{directory.name}: generation_config.json has {key} {getattr(ours, key)}" for key in keys
                if getattr(ours, key) != getattr(target, key)]
    with safe_open(directory / "model.safetensors", "pt") as weights:
        if weights.metadata() != {"format": "pt"}:
            problems.append(f"{directory.name}: the weights' metadata is {weights.metadata()}")
    return problems


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        make(root)
        return 0
    problems = check(root, check_directory)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
