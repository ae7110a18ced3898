"""tools/serving llama: GGUF exports in llama.cpp by its Python package; ids beside ours."""

from __future__ import annotations

import json
import os
import subprocess

from serving_parts.checks import PARTS, WINDOW, environment

VERSION = "0.3.36"
# GCC 12 drops stores that its intrinsic for AMX's configuration reads.
BUILD = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DCMAKE_CXX_FLAGS=-fno-tree-dse"


def run(ours):
    """Returns (Markdown, problems)."""
    venv = ours.work / "llama-venv"
    if not environment(venv, "llama_cpp"):
        print(f"compiling llama-cpp-python {VERSION}: 10 to 20 minutes on two cores", flush=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", f"llama-cpp-python=={VERSION}"], check=True,
                       env={"CMAKE_ARGS": BUILD, **os.environ})
    ours.export(ours.target, "target-gguf.gguf", "gguf")
    ours.export(ours.drafter, "drafter-gguf.gguf", "gguf")
    prompts = ours.prompts()
    ids = [output["ids"] for output in ours.generate(prompts)]
    job = {"target": str(ours.work / "target-gguf.gguf"), "drafter": str(ours.work / "drafter-gguf.gguf"),
           "prompts": prompts, "new_tokens": ours.options.new_tokens, "window": WINDOW,
           "threads": ours.options.threads, "eos": ours.eos()}
    printed = subprocess.run([str(venv / "bin/python"), str(PARTS / "llama_peer.py")], input=json.dumps(job),
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    lines, problems = [], []
    for name, theirs in json.loads(printed.splitlines()[-1]).items():
        equal, rounded, differences = ours.compare(prompts, ids, theirs, ours.eos())
        lines.append(f"* {name}: {equal} equal, {rounded} by rounding, {len(differences)} differ")
        problems += [f"{name}: {difference}" for difference in differences]
    text = "\n\n".join([
        f"## llama.cpp (llama-cpp-python {VERSION})",
        "Target and drafter as GGUF in fp32, caches in fp32; the drafter is a `LlamaDraftModel` of the Python package.",
        f"Greedy ids of {len(prompts)} prompts beside Draftsmith's:\n\n" + "\n".join(lines)])
    return text, problems
