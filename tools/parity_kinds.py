#!/usr/bin/env python3
"""Asks Transformers to load the directories ROOT/saved/*, models of kinds of our own, and complains of each that it takes
for a model it knows: it would fill in random weights. Used by tests/parity.

    parity_kinds.py make ROOT     # nothing to make
    parity_kinds.py check ROOT
"""
import pathlib
import sys

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM


def taken_by(directory):
    """Names of the classes that load the directory, or fail otherwise than by not knowing it."""
    names = []
    for loader in (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM):
        try:
            loader.from_pretrained(directory)
            names.append(f"{loader.__name__} loads it")
        except ValueError as error:
            if "does not recognize this architecture" not in str(error):
                names.append(f"{loader.__name__}: {error}")
    return names


def main():
    command, root = sys.argv[1], pathlib.Path(sys.argv[2])
    if command == "make":
        return 0
    directories = sorted((root / "saved").iterdir())
    problems = [f"{directory.name}: {problem}" for directory in directories for problem in taken_by(directory)]
    if not directories:
        problems.append("nothing was saved")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
