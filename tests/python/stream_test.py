"""Tests of Model.stream."""

import gc
import os
import threading
import unittest

import draftsmith
from fixtures import model, python, texts, trained


def count_threads():
    return len(os.listdir("/proc/self/task"))


class Streams(unittest.TestCase):
    def test_pieces_make_up_the_results(self):
        expected = model().generate(texts(), method="assisted", batch_size=2)
        with model().stream(texts(), method="assisted", batch_size=2) as stream:
            pieces = list(stream)
            results = stream.results()
        self.assertEqual([result.ids.tolist() for result in results], [result.ids.tolist() for result in expected])
        for index, result in enumerate(expected):
            own = [piece for piece in pieces if piece.output == index]
            self.assertEqual("".join(piece.text for piece in own), result.text)
            self.assertEqual([token for piece in own for token in piece.ids.tolist()], result.ids.tolist())
            self.assertEqual([piece.finished for piece in own], [False] * (len(own) - 1) + [True])
        self.assertGreater(len(pieces), len(expected))

    def test_closing_early_frees_the_model(self):
        threads = None
        for _ in range(5):
            with model().stream(texts() * 200) as stream:
                next(stream)
            self.assertEqual(list(stream), [])
            self.assertEqual(stream.results(), [])
            stream.close()
            threads = threads or count_threads()
        self.assertLessEqual(count_threads(), threads)
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_a_forgotten_stream_frees_the_model(self):
        stream = model().stream(texts() * 200)
        next(stream)
        del stream
        gc.collect()
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_an_open_stream_keeps_other_calls_away(self):
        with model().stream(texts() * 200) as stream:
            next(stream)
            with self.assertRaises(draftsmith.BusyError) as caught:
                model().generate(texts()[0])
            self.assertIn("close()", str(caught.exception))
            with self.assertRaises(draftsmith.BusyError):
                model().stream(texts()[0])
            next(stream)

    def test_a_stream_can_be_read_by_another_thread(self):
        expected = [result.ids.tolist() for result in model().generate(texts())]
        stream, found = model().stream(texts()), []
        reader = threading.Thread(target=lambda: found.extend(stream))
        reader.start()
        reader.join()
        self.assertEqual([result.ids.tolist() for result in stream.results()], expected)
        self.assertTrue(found)

    def test_errors_come_from_the_iterator(self):
        stream = model().stream([[1 << 40]])
        with self.assertRaises(draftsmith.UserError):
            next(stream)
        self.assertEqual(list(stream), [])
        self.assertEqual(len(model().generate(texts()[0])), 1)

    def test_the_interpreter_ends_with_an_open_stream(self):
        python("import draftsmith, sys\n"
               "model = draftsmith.load(sys.argv[1], device='cpu')\n"
               "stream = model.stream([[5, 6, 1]] * 500)\n"
               "next(stream)\n"
               "keep = [stream]; keep.append(keep)\n", trained() / "target/model")


if __name__ == "__main__":
    unittest.main()
