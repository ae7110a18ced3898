"""Prints what the Python of a machine says of it, in JSON: versions, and with --warm the GPU's clocks around some work.

    python3 device_facts.py [--warm] FOLDER...

Folders are where LibTorch finds NVRTC. It runs as a program of its own, since importing torch may fail or take long.
"""

import ctypes
import importlib.metadata
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import time

WARM_S = 1.0
SIZE = 4096


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def nvrtc_version(folders):
    files = [file for folder in folders for file in sorted(pathlib.Path(folder).glob("libnvrtc.so.*"))]
    if not files:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(str(files[0])).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def clock():
    """The speed of the GPU's processors at this moment."""
    words = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, timeout=5).stdout.splitlines()[0]


def warm():
    """Multiplies matrices until the GPU's clock must have risen. Returns the clocks before and after."""
    if not shutil.which("nvidia-smi"):
        return None
    import torch
    before = clock()
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + WARM_S
    while time.monotonic() < end:
        for _ in range(50):
            matrix @ matrix
        torch.cuda.synchronize()
    return {"before": before, "after": clock()}


def main():
    facts = {"python": platform.python_version(), "torch": version("torch"), "transformers": version("transformers"),
             "nvrtc": nvrtc_version(sys.argv[1:])}
    print(json.dumps(facts), flush=True)  # also if torch fails
    if "--warm" in sys.argv:
        print(json.dumps(facts | {"clocks": warm()}), flush=True)


if __name__ == "__main__":
    main()
