"""What import_gguf.py and recipes/export/export_gguf.py have in common; stands before both, behind python_script.py."""

import json
import math
import os
import struct
import sys
from pathlib import Path

try:
    import gguf
    import numpy
    from gguf import GGMLQuantizationType as Type
except ImportError as error:
    answer({"missing": str(error)})
    sys.exit()

PAIRED = ("llama", "granite", "smollm3")  # architectures of which llama.cpp rotates neighbouring numbers


class Refusal(Exception):
    """A file that cannot be imported or exported: what is wrong, what was expected and found, what to do."""

    def __init__(self, what, expected="", found="", hint=""):
        super().__init__(what)
        self.problem = {"what": what, "expected": str(expected), "found": str(found)[:300], "hint": hint}


def limited(action, otherwise):
    """Answers by the action's result, or by what is wrong with the file; `otherwise` says so of unknown errors."""
    try:
        answer({"text": action()})
    except Refusal as refusal:
        answer({"error": refusal.problem})
    except OSError as error:
        answer({"error": {"what": str(error.strerror or error), "found": str(error.filename or "")}})
    except MemoryError:
        answer({"error": {"what": "there is not enough memory", "hint": "one tensor at a time is held in fp32"}})
    except Exception as error:  # whatever gguf and numpy raise for damaged bytes
        answer({"error": {"what": otherwise, "found": f"{type(error).__name__}: {error}"[:300]}})
