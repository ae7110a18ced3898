#!/usr/bin/env python3
"""References for tests/parity: exported drafters, loaded and run by Transformers.

parity_export.py make DIR   writes DIR/<name>/ (a target's directory) and DIR/<name>.greedy.json (inputs and their greedy
                            outputs)
parity_export.py check DIR  loads every drafter DIR/saved/<name>/: alone it must generate the outputs of
                            DIR/<name>.ours.json, and as assistant_model the target must generate its own; the model card
                            must be one that the Hub reads. Prints one line a problem and exits 1 when there is any
"""

import json

import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from transformers import GenerationConfig

from parity_models import CONFIGURATIONS, NEW_TOKENS, greedy, greedy_sources, load_model, make_model, run, until_eos, \
    write_greedy

INPUTS = 40
GENERATION = ["eos_token_id", "pad_token_id", "bos_token_id"]
TARGETS = ("t5_v1_1", "llama3", "gpt2")


def make(root):
    for name in TARGETS:
        model = make_model(name)
        model.save_pretrained(root / name)
        write_greedy(root / f"{name}.greedy.json", model, greedy_sources(CONFIGURATIONS[name].vocab_size)[:INPUTS])


def assisted(target, drafter, tokens):
    """Greedy outputs with an assistant, new tokens only, EOS included."""
    generated = target.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), assistant_model=drafter,
                                max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
    return until_eos(generated[1 if target.config.is_encoder_decoder else tokens.shape[1]:])


def check_directory(root, directory):
    name = directory.name
    drafter, problems = load_model(directory)
    target, _ = load_model(root / name)
    wanted = json.loads((root / f"{name}.greedy.json").read_text())
    ours = json.loads((root / f"{name}.ours.json").read_text())
    if len(ours) != INPUTS or ours == wanted["outputs"]:
        problems.append(f"{name}: the drafter should have {INPUTS} outputs, other ones than its target")
    if greedy(drafter, wanted["sources"]) != ours:
        problems.append(f"{name}: alone it generates other ids than Draftsmith with the same model")
    with torch.no_grad():
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
    keys = GENERATION + ["decoder_start_token_id"] * CONFIGURATIONS[directory.name].is_encoder_decoder
    problems = [f"{directory.name}: generation_config.json has {key} {getattr(ours, key)}" for key in keys
                if getattr(ours, key) != getattr(target, key)]
    with safe_open(directory / "model.safetensors", "pt") as weights:
        if weights.metadata() != {"format": "pt"}:
            problems.append(f"{directory.name}: the weights' metadata is {weights.metadata()}")
    return problems


if __name__ == "__main__":
    run(make, check_directory)
