"""Tests of what the comparisons of bench/ compute."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the programs are loaded as modules

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))


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


if __name__ == "__main__":
    unittest.main()
