"""Tests of what the comparisons of bench/ and tools/serving compute."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the programs are loaded as modules

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(ROOT / "tools"))

from serving_parts import checks  # noqa: E402
from serving_parts.checks import Acceptance  # noqa: E402


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


class CompareTraining(unittest.TestCase):
    def summary(self, dropout):
        def run(speed, peak, loss):
            return {"tokens_per_second": speed, "peak_memory_mb": peak, "losses": [8.0, loss]}

        runs = {"draftsmith": [run(150, 70, 7.0), run(100, 70, 7.0)],
                "sdpa": [run(100, 100, 7.0002), run(200, 90, 7.0002)],
                "eager": [run(90, 110, 7.0003), run(250, 110, 7.0003)]}
        return load("compare_training").summary_of(runs, dropout)

    def test_ratios_are_to_the_peers_fastest_setting_of_the_same_round(self):
        summary = self.summary(0.1)
        self.assertEqual(summary["speed"], [1.5, 0.4])
        self.assertEqual(summary["memory"], [0.7, 70 / 110])

    def test_losses_are_compared_without_dropout_alone(self):
        self.assertIsNone(self.summary(0.1)["loss_difference"])
        self.assertAlmostEqual(self.summary(0)["loss_difference"], 0.0002)
        self.assertAlmostEqual(self.summary(0)["loss_rounding"], 0.0001)


class CompareDecoding(unittest.TestCase):
    def setUp(self):
        self.program = load("compare_decoding")

    def entries(self, trained=False):
        program = self.program.Program
        drafted = program("fp32", "draftsmith", "fp32", "assisted, small", ("--method", "assisted"))
        speeds = {program("fp32", "ctranslate2", "float32", "MKL"): [100, 200],
                  program("fp32", "ctranslate2", "float32", "oneDNN"): [50, 400],
                  program("fp32", "draftsmith", "fp32"): [150, 200],
                  drafted: [300, 600],
                  program("bf16", "draftsmith", "bf16"): [200, 100]}
        if not trained:
            speeds[program("fp32", "transformers", "float32")] = [10, 10]
        rounds = {key: [{"tokens_per_second": value, "ids": [[1, 2], [key.name == "transformers"]]} for value in values]
                  for key, values in speeds.items()}
        return self.program.summary_of("ctranslate2", rounds)

    def test_ratios_are_to_the_peers_best_setting_and_to_our_greedy_of_the_same_round(self):
        entries = {entry["program"]: entry for entry in self.entries()}
        self.assertEqual(entries["draftsmith fp32, greedy"]["to_same_type"], [1.5, 0.5])
        self.assertEqual(entries["draftsmith bf16, greedy"]["to_same_type"], [])
        self.assertEqual(entries["draftsmith bf16, greedy"]["to_any_type"], [2.0, 0.25])
        self.assertEqual(entries["draftsmith fp32, assisted, small"]["to_greedy"], [2, 3])

    def test_outputs_are_compared_with_transformers_or_with_our_greedy_ones(self):
        self.assertEqual([entry["equal_outputs"] for entry in self.entries()], [1, 1, 1, 1, 1, 2])
        self.assertEqual([entry["equal_outputs"] for entry in self.entries(trained=True)], [2] * 5)

    def test_a_row_has_medians_and_ratios(self):
        self.assertIn("| fp32 | draftsmith fp32, greedy | 175 (150–200) | 1.00 (0.50–1.50) |",
                      self.program.table_of("ctranslate2", self.entries()))


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
        self.assertEqual(checks.acceptance_of_metrics(METRICS, 3), Acceptance(200, [120, 70, 30]))

    def test_shares_far_apart_are_no_sampling_error(self):
        one = Acceptance(1000, [560, 320])
        self.assertTrue(checks.within_sampling_error(one, Acceptance(1000, [580, 350])))
        self.assertFalse(checks.within_sampling_error(one, Acceptance(1000, [580, 450])))


class Ids(unittest.TestCase):
    def test_an_eos_at_the_end_is_no_difference(self):
        self.assertIsNone(checks.first_difference([4, 5, 1], [4, 5], eos=1))

    def test_the_first_difference_is_found(self):
        self.assertEqual(checks.first_difference([4, 5, 6], [4, 7, 8], eos=1), 1)
        self.assertEqual(checks.first_difference([4, 5, 6], [4, 5], eos=1), 2)

    def test_only_ids_within_the_margin_of_the_best_are_rounding(self):
        self.assertTrue(checks.is_rounding([0, 2.0, 2.0005], ours=2, theirs=1))
        self.assertFalse(checks.is_rounding([0, 2.0, 2.002], ours=2, theirs=1))
        self.assertFalse(checks.is_rounding([0, 2.0, 2.0005], ours=2, theirs=0))


class Commands(unittest.TestCase):
    def test_the_printed_command_is_split_as_a_shell_does(self):
        printed = "To serve it:\n  vllm serve a --speculative-config '{\"model\": \"b c\"}'\n"
        self.assertEqual(checks.printed_command(printed, "vllm serve"),
                         ["vllm", "serve", "a", "--speculative-config", '{"model": "b c"}'])
        with self.assertRaisesRegex(ValueError, "printed no command"):
            checks.printed_command("nothing\n", "vllm serve")


if __name__ == "__main__":
    unittest.main()
