#!/usr/bin/env python3
"""Asks Transformers to load the directories ROOT/saved/*, models of kinds of our own, and complains of each that it takes
for a model it knows: it would fill in random weights. Used by tests/parity.

    parity_kinds.py make ROOT     # nothing to make
    parity_kinds.py check ROOT
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from parity_models import run


def taken_by(_, directory):
    """Problems: classes that load the directory, or fail otherwise than by not knowing it."""
    problems = []
    for loader in (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM):
        try:
            loader.from_pretrained(directory)
            problems.append(f"{directory.name}: {loader.__name__} loads it")
        except ValueError as error:
            if "does not recognize this architecture" not in str(error):
                problems.append(f"{directory.name}: {loader.__name__}: {error}")
    return problems


if __name__ == "__main__":
    run(lambda root: None, taken_by)
