"""Steps that measure: requests of the host, decoding, training, and the peers."""

from __future__ import annotations

from gpu_parts import places
from gpu_parts.checks import PEER, gpu_facts
from gpu_parts.running import Context, run_benches

# Dense bf16 TFLOP/s by the vendor's data sheets, for the share that training reaches.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250, "L40S": 362, "L4": 121}
TINY_DECODING = "--rounds 2 --new-tokens 10 --source 6 --copy-mb 8 --lengths 1,4 --alphas 0.8 --threads 1".split()
TINY_TRAINING = "--shapes tiny-t5 --rows 2 --source 8 --target 8 --rounds 1 --threads 1".split()


def peak_tflops(name: str) -> float:
    """The peak of a GPU of this name, 0 if it is unknown."""
    return next((float(peak) for part, peak in PEAKS.items() if part in name), 0.0)


def run_programs(context: Context, program: str, runs: list[list[str]]) -> None:
    binary = str(context.place.need(program))
    run_benches(context, [[binary, *words] for words in runs], context.place.environment())


def requests(context: Context) -> None:
    """Kernels, copies and waits of a greedy token and of a round, counted by LibTorch's profiler."""
    if context.dry:
        runs = [["--measures", "requests", "--shapes", "tiny-t5", "--pairs", "tiny-t5:tiny-t5-drafter", *TINY_DECODING]]
    else:
        runs = [["--measures", "requests", "--dtype", dtype, "--shapes", "t5-small,t5-large,llama-1b",
                 "--pairs", "t5-large:t5-small", "--rounds", "2"] for dtype in ("bf16", "fp32")]
    run_programs(context, places.DECODING_BENCH, runs)


def decoding(context: Context) -> None:
    """The shapes of issue 18, those that its goals name first."""
    measures = ["--measures", "greedy,verification,drafting,speculation"]
    if context.dry:
        shapes = ["--shapes", "tiny-t5,tiny-llama", "--pairs", "tiny-t5:tiny-t5-drafter", "--batches", "1,2"]
        run_programs(context, places.DECODING_BENCH, [[*measures, *shapes, "--dtype", "fp32", *TINY_DECODING]])
        return
    bf16 = [*measures, "--dtype", "bf16", "--batches", "1,4,16,64", "--pair-batches", "1,16"]
    run_programs(context, places.DECODING_BENCH, [
        [*bf16, "--shapes", "t5-large,t5-small", "--pairs", "t5-large:t5-small"],
        [*bf16, "--shapes", "llama-8b,llama-1b", "--pairs", "llama-8b:llama-1b"],
        [*bf16, "--shapes", "mt5-large"],
        [*measures, "--dtype", "fp32", "--shapes", "t5-small,t5-large", "--pairs", "t5-large:t5-small"],
        [*measures, "--dtype", "fp16", "--shapes", "t5-large"]])


def training(context: Context) -> None:
    """8,192 tokens read and 8,192 written a step."""
    if context.dry:
        run_programs(context, places.TRAINING_BENCH, [TINY_TRAINING])
        return
    peak = ["--peak-tflops", str(peak_tflops(gpu_facts().get("name", "")))]
    size = ["--rows", "64", "--source", "128", "--target", "128"]
    run_programs(context, places.TRAINING_BENCH, [
        [*peak, *size, "--shapes", "t5-small", "--precisions", "bf16,fp32", "--dropouts", "0,0.1"],
        [*peak, *size, "--shapes", "t5-large", "--precisions", "bf16", "--dropouts", "0,0.1"]])


def run_peers(context: Context, runs: list[list[str]], at_once: int = 1) -> None:
    python = context.need_python()
    run_benches(context, [[python, str(PEER), *words] for words in runs], {}, at_once)


def peers(context: Context) -> None:
    """Transformers: greedy decoding and a training loop, then decoding with a compiled step, which is slow to start."""
    if context.dry:
        tiny = "--shapes tiny-t5 --rounds 1 --source 6".split()
        run_peers(context, [["decoding", *tiny, "--new-tokens", "4", "--dtype", "fp32", "--modes", "eager,compiled",
                             "--backend", "eager"],
                            ["training", *tiny, "--target", "8", "--batches", "2", "--precision", "fp32"]], at_once=2)
        return
    size = "--batches 64 --source 128 --target 128".split()
    run_peers(context, [
        ["decoding", "--shapes", "t5-large,t5-small", "--batches", "1,16", "--rounds", "3"],
        ["training", "--shapes", "t5-small,t5-large", *size],
        ["training", "--shapes", "t5-small", *size, "--dropout", "0.1"],
        ["decoding", "--shapes", "t5-small,t5-large", "--modes", "compiled", "--rounds", "3"]])
