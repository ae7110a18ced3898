#!/usr/bin/env python3
"""Greedy decoding by llama.cpp's server (xllamacpp). Reads a job from the standard input, in JSON: target and maybe
drafter (GGUF), prompts (ids), new_tokens, window, threads. Prints the ids and how many drafted tokens were kept."""

import json
import os
import sys
import urllib.request

import xllamacpp


def serve(job, drafter):
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.n_parallel, options.port, options.verbosity = job["target"], 512, 1, 0, 0
    fp32, threads = xllamacpp.ggml_type.GGML_TYPE_F32, job["threads"]  # caches and fused attention are fp16 otherwise
    options.cache_type_k = options.cache_type_v = fp32
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    if drafter:
        options.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft = options.speculative.draft
        draft.mparams.path, draft.n_max, draft.cache_type_k, draft.cache_type_v = drafter, job["window"], fp32, fp32
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(options)


def main():
    job = json.load(sys.stdin)
    found = {"ids": [], "kept": 0}
    server = serve(job, job.get("drafter"))
    for prompt in job["prompts"]:
        body = {"prompt": prompt, "n_predict": job["new_tokens"], "temperature": 0, "return_tokens": True}
        request = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        found["ids"].append(answer["tokens"])
        found["kept"] += answer["timings"].get("draft_n_accepted", 0)
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
