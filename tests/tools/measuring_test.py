"""Tests of what the comparisons and curves of bench/ and tools/serving compute."""

import argparse
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the programs are loaded as modules

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(ROOT / "tools"))

from serving_parts import arithmetic  # noqa: E402
from serving_parts.arithmetic import Acceptance  # noqa: E402


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


class Measuring(unittest.TestCase):
    def test_each_program_is_first_in_some_round(self):
        in_turns = load("compare_decoding").measuring.in_turns
        self.assertEqual([in_turns("abc", number) for number in range(4)],
                         [list("abc"), list("bca"), list("cab"), list("abc")])

    def test_machines_of_several_calls_are_joined(self):
        machines = load("compare_decoding").measuring.machines
        self.assertEqual(machines(["Xeon, 2 cores, commit b, 2026-11-23", "Xeon, 2 cores, commit a, 2026-11-23"]),
                         "Xeon, 2 cores, commits a, b, 2026-11-23")


class CompareTraining(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_training")

    def summary(self, dropout):
        def run(speed, peak, loss):
            return {"tokens_per_second": speed, "peak_memory_mb": peak, "memory_before_mb": 10, "losses": [8.0, loss]}

        runs = {"draftsmith": [run(150, 70, 7.0), run(100, 70, 7.0)],
                "sdpa": [run(100, 100, 7.0002), run(200, 90, 7.0002)],
                "eager": [run(90, 110, 7.0003), run(250, 110, 7.0003)]}
        return self.program.summary_of(self.program.Case("fp32", 8, dropout), runs)

    def test_ratios_are_to_the_peers_fastest_setting_of_the_same_round(self):
        summary = self.summary(0.1)
        self.assertEqual(summary["theirs"]["tokens_per_second"], [100, 250])
        self.assertEqual(summary["speed"], [1.5, 0.4])
        self.assertEqual(summary["memory"], [0.7, 70 / 110])
        self.assertEqual(summary["peer"], "eager")

    def test_losses_are_compared_without_dropout_alone(self):
        self.assertIsNone(self.summary(0.1)["loss_difference"])
        self.assertAlmostEqual(self.summary(0)["loss_difference"], 0.0002)
        self.assertAlmostEqual(self.summary(0)["loss_rounding"], 0.0001)

    def test_goals_that_are_missed_are_named(self):
        lines = list(self.program.verdicts([self.summary(0), self.summary(0.1)]))
        self.assertIn("1.3 times PyTorch's tokens/s without dropout: 0.95 to 0.95, missed in 1 of 1 cases.", lines[0])
        self.assertIn("1.5 times PyTorch's tokens/s with dropout: 0.95 to 0.95, missed in 1 of 1 cases.", lines[1])
        self.assertIn("at most 0.8 of its peak memory: 0.67 to 0.67, reached.", lines[2])
        self.assertIn("within 0.0001: 0.00020 to 0.00020, missed in 1 of 1 cases.", lines[3])


class CompareDecoding(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_decoding")
        self.options = argparse.Namespace(dtype=["fp32", "bf16"], batch_size=1, threads=2, new_tokens=2)

    def rounds(self):
        program = self.program.Program
        speeds = {program("fp32", "ctranslate2", "float32", "MKL"): [100, 200],
                  program("fp32", "ctranslate2", "float32", "oneDNN"): [50, 400],
                  program("fp32", "transformers", "float32"): [10, 10],
                  program("fp32", "draftsmith", "fp32"): [150, 200],
                  program("bf16", "draftsmith", "bf16"): [200, 100]}
        return {key: [{"tokens_per_second": value, "ids": [[1, 2]]} for value in values]
                for key, values in speeds.items()}

    def test_ratios_are_to_the_peers_best_setting_of_the_same_round(self):
        shape = self.program.SHAPES["drafter"]
        entries = {entry["program"]: entry for entry in self.program.summary_of(shape, self.rounds(), self.options)}
        self.assertEqual(entries["draftsmith fp32"]["ratio_to_same_type"], [1.5, 0.5])
        self.assertEqual(entries["draftsmith bf16"]["ratio_to_same_type"], [])
        self.assertEqual(entries["draftsmith bf16"]["ratio_to_any_type"], [2.0, 0.25])
        self.assertEqual(entries["draftsmith bf16"]["equal_outputs"], 1)


class Scale(unittest.TestCase):
    def setUp(self):
        self.program = load("scale")

    def points(self, power):
        return [{"x": x, "seconds": 3 * x ** power, "extra_mb": 100 * x ** power} for x in (1, 2, 4)]

    def test_exponents_are_the_slopes_of_logarithms(self):
        for power in (0.5, 1, 2):
            found = self.program.exponents(self.points(power))
            for slope in (*found["time"], *found["memory"]):
                self.assertAlmostEqual(slope, power)

    def test_a_curve_stops_before_a_run_over_the_limit(self):
        class Place:
            def measure(self, run):
                return 0.01 * run.new_tokens ** 2, 100 + run.new_tokens

        options = argparse.Namespace(rounds=1, largest=None, end=float("inf"))
        result = self.program.measure_curve(self.program.curves()["output"], Place(), options)
        self.assertEqual([point["x"] for point in result["points"]], [64, 128])
        self.assertIn("256 new tokens were not measured: a run would take 655 s", result["stopped"])


class CompareTranslation(unittest.TestCase):
    def test_ratios_are_to_the_faster_backend_and_to_our_greedy_of_the_round(self):
        program = load("compare_translation")
        mkl, onednn = (program.Setting("int8", f"CTranslate2 greedy, {name}", backend=name)
                       for name in ("MKL", "oneDNN"))
        greedy, drafted = program.Setting("int8", "greedy"), program.Setting("int8", "assisted, aligned")
        ids, other = [[5, 6], [7, 8, 9]], [[5, 6], [7, 8, 1]]
        rounds = {mkl: [{"seconds": 4, "ids": ids}, {"seconds": 3, "ids": ids}],
                  onednn: [{"seconds": 2, "ids": other}, {"seconds": 6, "ids": other}],
                  greedy: [{"seconds": 1, "ids": ids}, {"seconds": 1, "ids": ids}],
                  drafted: [{"seconds": 0.5, "ids": ids}, {"seconds": 0.25, "ids": ids}]}
        entries = {entry["setting"]: entry for entry in program.summary_of(rounds)}
        self.assertEqual(entries["assisted, aligned"]["to_greedy"], [2, 4])
        self.assertEqual(entries["assisted, aligned"]["to_ctranslate2"], [4, 12])
        self.assertEqual(entries["assisted, aligned"]["tokens_per_second"], [10, 20])
        self.assertEqual(entries["CTranslate2 greedy, oneDNN"]["equal_outputs"], 1)
        self.assertEqual(program.without_end([3, 1], 1), program.without_end([3], 1))


METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 200.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 7e+01
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="2"} 1.7e+09
"""


class AcceptanceByPosition(unittest.TestCase):
    def test_metrics_are_read_without_times_of_creation(self):
        self.assertEqual(arithmetic.acceptance_of_metrics(METRICS, 3), Acceptance(200, [120, 70, 30]))

    def test_drafts_keep_what_their_output_holds(self):
        drafts = [[[1, [5, 6, 7]], [3, [7, 8, 9]]], [[1, [4, 4, 4]]]]
        outputs = [[3, 5, 6, 7, 8], [3, 9]]
        self.assertEqual(arithmetic.acceptance_of_drafts(drafts, outputs, 3), Acceptance(3, [2, 2, 1]))

    def test_an_interval_is_wilsons(self):
        low, high = arithmetic.interval(8, 10)
        self.assertAlmostEqual(low, 0.4902, places=4)
        self.assertAlmostEqual(high, 0.9433, places=4)
        self.assertEqual(arithmetic.interval(0, 0), (0, 1))

    def test_shares_far_apart_are_no_sampling_error(self):
        one = Acceptance(1000, [560, 320])
        self.assertTrue(arithmetic.within_sampling_error(one, Acceptance(1000, [580, 350])))
        self.assertFalse(arithmetic.within_sampling_error(one, Acceptance(1000, [580, 450])))


class Ids(unittest.TestCase):
    def test_an_eos_at_the_end_is_no_difference(self):
        self.assertIsNone(arithmetic.first_difference([4, 5, 1], [4, 5], eos=1))

    def test_the_first_difference_is_found(self):
        self.assertEqual(arithmetic.first_difference([4, 5, 6], [4, 7, 8], eos=1), 1)
        self.assertEqual(arithmetic.first_difference([4, 5, 6], [4, 5], eos=1), 2)

    def test_only_ids_within_the_margin_of_the_best_are_rounding(self):
        self.assertTrue(arithmetic.is_rounding([0, 2.0, 2.0005], ours=2, theirs=1))
        self.assertFalse(arithmetic.is_rounding([0, 2.0, 2.002], ours=2, theirs=1))
        self.assertFalse(arithmetic.is_rounding([0, 2.0, 2.0005], ours=2, theirs=0))


class Commands(unittest.TestCase):
    def test_the_printed_command_is_split_as_a_shell_does(self):
        printed = "To serve it:\n  vllm serve a --speculative-config '{\"model\": \"b c\"}'\n"
        self.assertEqual(arithmetic.printed_command(printed, "vllm serve"),
                         ["vllm", "serve", "a", "--speculative-config", '{"model": "b c"}'])
        with self.assertRaisesRegex(ValueError, "printed no command"):
            arithmetic.printed_command("nothing\n", "vllm serve")


LOG = """(Worker pid=7) ERROR 11-25 08:58:18 [a_b.py:953] Traceback (most recent call last):
(Worker pid=7) ERROR 11-25 08:58:18 [a_b.py:953]   File "/x/site-packages/vllm/layers.py", line 515, in load
(Worker pid=7) ERROR 11-25 08:58:18 [a_b.py:953]     assert rows == ids
(Worker pid=7) ERROR 11-25 08:58:18 [a_b.py:953]            ^^^^^^^^^^^
(Worker pid=7) ERROR 11-25 08:58:18 [a_b.py:953] AssertionError
(APIServer pid=6)   File "/x/site-packages/vllm/entry.py", line 3, in main
(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above.
"""


class Pages(unittest.TestCase):
    def test_a_refusal_is_the_cause_with_its_place(self):
        self.assertEqual(arithmetic.refusal(LOG), "AssertionError, by vllm/layers.py, line 515: `assert rows == ids`")


if __name__ == "__main__":
    unittest.main()
