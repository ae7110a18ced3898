"""Tests of what tools/serving computes: vLLM's metrics, the margin rule, the printed command."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from serving_parts import checks  # noqa: E402
from serving_parts.checks import Acceptance  # noqa: E402

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

    def test_metrics_without_drafts_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "hold no drafts"):
            checks.acceptance_of_metrics("vllm:num_requests_running 0\n", 3)

    def test_a_histogram_counts_drafts_that_kept_at_least_so_many(self):
        self.assertEqual(checks.acceptance_of_histogram([5, 3, 2], 2), Acceptance(10, [5, 2]))

    def test_drafts_keep_what_their_output_holds(self):
        drafts = [[[1, [5, 6, 7]], [3, [7, 8, 9]]], [[1, [4, 4, 4]]]]
        outputs = [[3, 5, 6, 7, 8], [3, 9]]
        self.assertEqual(checks.acceptance_of_drafts(drafts, outputs, 3), Acceptance(3, [2, 2, 1]))

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
