"""Loaded models and what they put out."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _draftsmith as native
from ._toml import lines
from .errors import BusyError, DraftsmithWarning, UserError

@dataclass(frozen=True)
class Result:
    """One output."""

    ids: np.ndarray  # new token ids, EOS included; `torch.from_numpy(result.ids)` copies nothing
    text: str | None  # None if the model has no tokenizer
    stats: dict[str, Any]  # counts and seconds of decoding, as `draftsmith generate --json` prints them
    error: str | None = None  # why this output failed, while others did not; it has no ids then

    def row(self) -> dict[str, Any]:
        """Returns text, number of tokens and all counts as one flat dict, for `pandas.DataFrame`."""
        row: dict[str, Any] = {"text": self.text, "tokens": len(self.ids), "error": self.error}
        for name, value in self.stats.items():
            if isinstance(value, Mapping):
                row.update({f"{name}_{part}": number for part, number in value.items()})
            elif not isinstance(value, list):
                row[name] = value
        return row


@dataclass(frozen=True)
class Piece:
    """Tokens of one output that were committed together."""

    output: int  # index among all results
    ids: np.ndarray
    text: str  # whole characters that these tokens complete; "" if the model has no tokenizer
    finished: bool


class _Closed(Exception):
    """Ends decoding when the reader has closed the stream."""


class Stream(Iterator[Piece]):
    """Pieces of outputs as they are committed. A thread decodes ahead by up to 64 pieces.

    The model takes no other call until the stream is read to its end or closed; use it in a `with` statement.
    """

    def __init__(self, decode: Callable[[Callable[..., None]], list[Result]]) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(64)  # pieces, then the results or an error, then None
        self._results: list[Result] = []
        closed = threading.Event()
        # The thread does not hold the stream, so that one that nobody holds any more is closed.
        thread = threading.Thread(target=_decode_ahead, args=(decode, self._queue, closed), daemon=True)
        # Before the interpreter ends, too: the thread must not outlive it.
        self._close = weakref.finalize(self, _end, thread, self._queue, closed)
        thread.start()

    def __next__(self) -> Piece:
        item = self._queue.get()
        if isinstance(item, Piece):
            return item
        self._queue.put(None)
        if isinstance(item, BaseException):
            raise item
        self._results = item or self._results
        raise StopIteration

    def close(self) -> None:
        """Stops decoding. May be called several times."""
        self._close()

    def results(self) -> list[Result]:
        """Returns all results once the stream was read to its end; an empty list before, and if it was closed."""
        return list(self._results)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _decode_ahead(decode: Callable[..., list[Result]], pieces: queue.Queue[Any], closed: threading.Event) -> None:
    def push(*piece: Any) -> None:
        if closed.is_set():
            raise _Closed
        pieces.put(Piece(*piece))

    try:
        pieces.put(decode(push))
    except _Closed:
        pass
    except BaseException as error:
        pieces.put(error)


def _end(thread: threading.Thread, pieces: queue.Queue[Any], closed: threading.Event) -> None:
    closed.set()
    _drain(pieces)  # the thread may wait for room
    if thread is not threading.current_thread():  # which may collect a stream
        thread.join()
    _drain(pieces)
    pieces.put(None)


def _drain(pieces: queue.Queue[Any]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            pieces.get_nowait()


class Model:
    """A target with its drafter, made by `load`. Threads may share it: their calls take turns."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._freed = threading.Condition()
        self._in_use = self._streams = False

    def generate(self, inputs: Any, method: str = "greedy", **options: Any) -> list[Result]:
        """Decodes texts or token ids.

        Args:
            inputs: one text or a list of texts; or token ids (lists, NumPy arrays, tensors on the CPU): of one input, or
                a list or two-dimensional array of inputs. EOS and BOS are added to texts alone, where the model wants
                them.
            **options: decoding options by the program's names, which `draftsmith.options()` explains; None is the
                default.

        Returns:
            The results in the order of the inputs, `num_samples` for each.

        Raises:
            UserError: an option, input, drafter or router that is wrong or does not fit.
            BusyError: a stream of this model is open.
        """
        call = self._call(inputs, method, options)
        self._take(streams=False)
        return self._decode(call)

    def stream(self, inputs: Any, method: str = "greedy", **options: Any) -> Stream:
        """Decodes as `generate` and yields tokens as they are committed.

            with model.stream("ein Satz", method="assisted") as pieces:
                for piece in pieces:
                    print(piece.text, end="", flush=True)

        Raises:
            As `generate`; errors of decoding come from the iterator.
        """
        call = self._call(inputs, method, options)
        self._take(streams=True)
        return Stream(functools.partial(self._decode, call))

    def _call(self, inputs: Any, method: str, options: dict[str, Any]) -> Any:
        call = native.DecodeCall(self._decoder, _inputs(inputs), lines({"method": method, **options}))
        for name in call.unread:
            warnings.warn(f"{name} has no effect on method {method}", DraftsmithWarning, stacklevel=3)
        return call

    def _take(self, streams: bool) -> None:
        """Waits until no other call decodes, and keeps others away."""
        with self._freed:
            while self._in_use and not self._streams:
                self._freed.wait()
            busy = self._in_use
            if not busy:
                self._in_use, self._streams = True, streams
        if busy:  # raised without the lock, which the end of a stream that is collected meanwhile waits for
            raise BusyError("a stream of this model is open", expected="a model that is not in use",
                            found="a stream that is neither read to its end nor closed",
                            hint="read it to its end, call its close(), or load the model a second time")

    def _decode(self, call: Any, on_piece: Callable[..., None] | None = None) -> list[Result]:
        try:
            return [Result(*values) for values in native.decode(self._decoder, call, on_piece)]
        finally:
            with self._freed:
                self._in_use = self._streams = False
                self._freed.notify_all()


def load(
    target: str | os.PathLike[str],
    drafter: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "fp32",
    drafter_dtype: str | None = None,
    device: str = "auto",
    threads: int = 0,
    source_language: str = "",
    target_language: str = "",
) -> Model:
    """Loads the directory of a target, and the drafter when a method first needs it.

    Arguments are the flags of `draftsmith generate`; 0 threads are those that torch has. Raises a UserError for a
    directory that is no model, and an unknown drafter, type or device.
    """
    return Model(native.load(os.fspath(target), "" if drafter is None else os.fspath(drafter), dtype,
                             drafter_dtype or "", lines({"device": device, "threads": threads,
                                                         "source_language": source_language,
                                                         "target_language": target_language})))


def options() -> list[dict[str, Any]]:
    """Returns name, default, choices, unit and help of each decoding option."""
    return native.options()


def _inputs(inputs: Any) -> list[Any]:
    """The inputs as a list, for one input a list of one."""
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, (Mapping, bytes, bytearray)):
        raise UserError("the input is neither text nor token ids", where="inputs", hint="pass its ['input_ids'], unpadded")
    dimensions = getattr(inputs, "ndim", None)  # of arrays and tensors
    if dimensions is not None:
        return list(inputs) if dimensions > 1 else [inputs]
    inputs = list(inputs)
    if inputs and all(hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0 for item in inputs):
        return [inputs]
    return inputs
