"""Steps that measure: requests of the host, decoding, training, and the peers."""

from __future__ import annotations

from gpu_parts import places
from gpu_parts.checks import EAGER, PEER, PROGRAMS, gpu_facts
from gpu_parts.running import Bench, Context, run_benches

# Dense bf16 TFLOP/s by the vendor's data sheets, for the share that training reaches.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121}
TINY_DECODING = "--rounds 2 --new-tokens 10 --source 6 --copy-mb 8 --lengths 1,4 --alphas 0.8 --threads 1".split()
TINY_TRAINING = "--shapes tiny-t5 --rows 2 --source 8 --target 8 --rounds 1 --threads 1 --matrix 64".split()


def peak_tflops(name: str) -> float:
    """The peak of a GPU of this name, 0 if it is unknown."""
    return next((float(peak) for part, peak in PEAKS.items() if part in name), 0.0)


def run_programs(context: Context, program: str, runs: list[list[str]], eager: list[list[str]] = (),
                 step_programs: list[list[str]] = ()) -> None:
    """Runs a bench with several lists of flags; those of `eager` without recorded graphs, others with step programs."""
    binary = str(context.place.need(program))
    environment = context.place.environment()
    benches = [Bench([binary, *words], environment, {"steps": "as by default"}) for words in runs]
    benches += [Bench([binary, *words], environment | PROGRAMS, {"steps": "programs"}) for words in step_programs]
    benches += [Bench([binary, *words], environment | EAGER, {"steps": "eager"}) for words in eager]
    run_benches(context, benches)


def requests(context: Context) -> None:
    """Kernels, copies and waits of a greedy token and of a round, counted by LibTorch's profiler."""
    words = ["--measures", "requests", "--dtype"]
    if context.dry:
        tiny = [*words, "fp32", "--shapes", "tiny-t5", "--pairs", "tiny-t5:tiny-t5-drafter", *TINY_DECODING]
        run_programs(context, places.DECODING_BENCH, [tiny])
        return
    shapes = ["--shapes", "t5-small,t5-large,llama-1b", "--pairs", "t5-large:t5-small", "--rounds", "2"]
    bf16 = [*words, "bf16", *shapes]
    run_programs(context, places.DECODING_BENCH, [bf16, [*words, "fp32", *shapes]], eager=[bf16], step_programs=[bf16])


def decoding(context: Context) -> None:
    """Shapes from 60 million to 8 billion numbers, the most important first; T5 without graphs at the end."""
    measures = ["--measures", "greedy,verification,drafting,speculation"]
    if context.dry:
        shapes = ["--shapes", "tiny-t5,tiny-llama", "--pairs", "tiny-t5:tiny-t5-drafter", "--batches", "1,2"]
        run_programs(context, places.DECODING_BENCH, [[*measures, *shapes, "--dtype", "fp32", *TINY_DECODING]])
        return
    bf16 = [*measures, "--dtype", "bf16", "--batches", "1,4,16,64", "--pair-batches", "1,16"]
    t5 = ["--shapes", "t5-large,t5-small", "--pairs", "t5-large:t5-small"]
    run_programs(context, places.DECODING_BENCH, [
        [*bf16, *t5],
        [*bf16, "--shapes", "llama-8b,llama-1b", "--pairs", "llama-8b:llama-1b"],
        [*bf16, "--shapes", "mt5-large"],
        [*measures, "--dtype", "fp32", *t5],
        [*measures, "--dtype", "fp16", "--shapes", "t5-large"]],
        eager=[[*measures, "--dtype", "bf16", *t5]], step_programs=[[*measures, "--dtype", "bf16", *t5]])


def training(context: Context) -> None:
    """8,192 tokens read and 8,192 written a step."""
    if context.dry:
        run_programs(context, places.TRAINING_BENCH, [TINY_TRAINING])
        return
    peak = ["--peak-tflops", str(peak_tflops(gpu_facts().get("name", "")))]
    size = ["--rows", "64", "--source", "128", "--target", "128"]
    run_programs(context, places.TRAINING_BENCH, [
        [*peak, *size, "--matrix", "8192", "--shapes", "t5-small", "--precisions", "bf16,fp32", "--dropouts", "0,0.1"],
        [*peak, *size, "--shapes", "t5-large", "--precisions", "bf16", "--dropouts", "0,0.1"]])


def run_peers(context: Context, runs: list[list[str]]) -> None:
    python = context.need_python()
    run_benches(context, [Bench([python, str(PEER), *words]) for words in runs])


def peers(context: Context) -> None:
    """Transformers: greedy decoding and a training loop, then decoding with a compiled step, which is slow to start."""
    if context.dry:  # in one process, since importing Transformers takes longer than all of it
        tiny = "--shapes tiny-t5 --rounds 1 --source 6 --target 8 --new-tokens 4 --dtype fp32 --precision fp32".split()
        run_peers(context, [["decoding,training", *tiny, "--modes", "eager,compiled", "--backend", "eager"]])
        return
    size = "--batches 64 --source 128 --target 128".split()
    run_peers(context, [
        ["decoding", "--shapes", "t5-large,t5-small", "--batches", "1,16", "--rounds", "3"],
        ["training", "--shapes", "t5-small,t5-large", *size],
        ["training", "--shapes", "t5-small", *size, "--dropout", "0.1"],
        ["decoding", "--shapes", "t5-small,t5-large", "--modes", "compiled", "--rounds", "3"]])
