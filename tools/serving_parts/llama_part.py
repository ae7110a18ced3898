"""tools/serving llama: GGUF exports in llama.cpp by its Python package; ids, logits and acceptance beside ours."""

from __future__ import annotations

import json
import os
import subprocess

from serving_parts.checks import PARTS, WINDOW, acceptance_of_drafts, acceptance_table, within_sampling_error

VERSION = "0.3.36"
# GCC 12 drops stores that its intrinsic for AMX's configuration reads.
BUILD = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DCMAKE_CXX_FLAGS=-fno-tree-dse"
LOGITS_TOLERANCE = 1e-3  # of the largest


def install(venv):
    """Compiles llama-cpp-python, 10 to 20 minutes on two cores; does nothing if it is there."""
    if list(venv.glob("lib/python*/site-packages/llama_cpp/__init__.py")):
        return
    print(f"compiling llama-cpp-python {VERSION}: 10 to 20 minutes on two cores", flush=True)
    subprocess.run(["python3", "-m", "venv", str(venv)], check=True)
    subprocess.run([str(venv / "bin/pip"), "install", "--quiet", f"llama-cpp-python=={VERSION}"], check=True,
                   env={"CMAKE_ARGS": BUILD, **os.environ})


def decode(ours, venv, prompts):
    """Returns the answer of llama_peer.py."""
    job, answer = ours.work / "llama-job.json", ours.work / "llama-answer.json"
    job.write_text(json.dumps({
        "target": str(ours.work / "target-gguf.gguf"), "drafter": str(ours.work / "drafter-gguf.gguf"),
        "prompts": prompts, "new_tokens": ours.options.new_tokens, "window": WINDOW,
        "threads": ours.options.threads, "eos": ours.eos()}))
    subprocess.run([str(venv / "bin/python"), str(PARTS / "llama_peer.py"), str(job), str(answer)], check=True)
    return json.loads(answer.read_text())


def largest_difference(ours, prompts, outputs, theirs):
    """Returns how far logits that chose the last tokens are from ours, of our largest."""
    last = {i: len(ids) - 1 for i, ids in enumerate(outputs)}
    mine = ours.logits_at(prompts, outputs, last)
    return max(max(abs(a - b) for a, b in zip(mine[i], theirs[i])) / max(map(abs, mine[i])) for i in last)


def run(ours):
    """Returns (Markdown, problems)."""
    venv = ours.options.llama_venv or ours.work / "llama-venv"
    install(venv)
    ours.export(ours.target, "target-gguf.gguf", "gguf")
    ours.export(ours.drafter, "drafter-gguf.gguf", "gguf")
    prompts = ours.prompts()
    ids = [output["ids"] for output in ours.generate(prompts)]
    answer = decode(ours, venv, prompts)
    lines = []
    mine, problems = ours.acceptance(prompts, ids)
    for name in ("alone", "assisted"):
        equal, rounded, differences = ours.compare(prompts, ids, answer[name], ours.eos())
        lines.append(f"* {name}: {equal} equal, {rounded} by rounding, {len(differences)} differ")
        problems += [f"{name}: {difference}" for difference in differences]
    theirs = acceptance_of_drafts(answer["drafts"], answer["assisted"], WINDOW)
    if not within_sampling_error(mine, theirs):
        problems.append("acceptance by position differs by more than sampling error")
    difference = largest_difference(ours, prompts, answer["alone"], answer["logits"])
    if difference > LOGITS_TOLERANCE:
        problems.append(f"logits differ by {difference:.1e} of the largest")
    text = "\n\n".join([
        f"## llama.cpp (llama-cpp-python {VERSION})",
        "Target and drafter as GGUF in fp32, caches in fp32; the drafter is a `LlamaDraftModel` of the Python package.",
        f"Greedy ids of {len(prompts)} prompts beside Draftsmith's:\n\n" + "\n".join(lines),
        f"Logits of the outputs' last tokens differ by up to {difference:.1e} of the largest.",
        acceptance_table({"Draftsmith": mine, "llama.cpp": theirs})])
    return text, problems
