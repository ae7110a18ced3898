#!/usr/bin/env python3
"""Converts Parquet files and Hugging Face datasets to jsonl or parallel text, which Draftsmith reads by name.

    tools/convert_dataset.py INPUT... --out DATA/NAME/SPLIT.jsonl [--columns a,b] [--limit N]
    tools/convert_dataset.py INPUT... --parallel de,en --out DATA/NAME/SPLIT

INPUT is a .parquet or .arrow file, a folder with such files (a download of a dataset, or what datasets'
save_to_disk wrote), or a folder and a split of it, FOLDER:train. --parallel takes the columns of these names, or the
entries of a column `translation`, and writes OUT.de and OUT.en. Needs pyarrow: pip install pyarrow (the version that
is tested is in tools/requirements-peers.txt). Exit code 2: the input cannot be used; one message says why.
"""

import argparse
import base64
import datetime
import functools
import json
import os
import pathlib
import sys

BATCH = 4096  # rows in memory
ENDINGS = (".parquet", ".arrow")


def fail(what, expected, found):
    print(f"error: {what}\n  expected: {expected}\n  found:    {found}", file=sys.stderr)
    sys.exit(2)


def files_of(text):
    """The files of one input, in the order of their names."""
    name, _, split = text.partition(":")
    path = pathlib.Path(name)
    if path.is_file():
        return [path]
    if not path.is_dir():
        fail(f"{path} is not there", "a .parquet or .arrow file, or a folder with such files", "neither")
    files = [file for file in sorted(path.rglob("*")) if file.suffix in ENDINGS and not file.name.startswith("cache-")]
    # A split names its folder or begins its files' names: train/data-00000.arrow, train-00000-of-00001.parquet.
    chosen = [file for file in files if not split or file.name.startswith(split) or split in file.relative_to(path).parts]
    if not chosen:
        fail(f"no data in {text}", "files *.parquet or *.arrow" + (f" of the split {split}" if split else ""),
             ", ".join(file.name for file in files[:5]) or "none")
    splits = {file.name.split("-")[0] if file.parent == path else file.parent.name for file in chosen}
    if not split and len(splits) > 1 and not all(file.name.startswith("data-") for file in chosen):
        fail(f"{path} has several splits", f"one of them: {path}:{sorted(splits)[0]}", ", ".join(sorted(splits)))
    return chosen


def batches_of(file):
    import pyarrow
    import pyarrow.parquet
    try:
        if file.suffix == ".parquet":
            yield from pyarrow.parquet.ParquetFile(file).iter_batches(BATCH)
            return
        with pyarrow.memory_map(str(file)) as source:
            try:
                reader = pyarrow.ipc.open_stream(source)
            except pyarrow.ArrowInvalid:
                reader = pyarrow.ipc.open_file(source)
                reader = (reader.get_batch(i) for i in range(reader.num_record_batches))
            yield from reader
    except pyarrow.ArrowInvalid as error:
        fail(f"{file} cannot be read", "a Parquet or Arrow file", str(error).splitlines()[0])


def rows_of(inputs, columns, limit):
    """Rows as dictionaries, at most `limit` of them (0: all)."""
    count = 0
    for file in [file for text in inputs for file in files_of(text)]:
        for batch in batches_of(file):
            names = batch.schema.names
            for column in columns:
                if column not in names:
                    fail(f"{file} has no column {column}", "one of its columns", ", ".join(names))
            for row in (batch.select(columns) if columns else batch).to_pylist():
                yield row
                count += 1
                if count == limit:
                    return


def as_json(value):
    """What JSON cannot hold: times become ISO texts, bytes base64."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def text_in(row, language):
    pair = row.get("translation") if isinstance(row.get("translation"), dict) else row
    value = pair.get(language)
    if not isinstance(value, str):
        fail(f"a row has no text in {language}", f"a column {language}, or translation with {language}", ", ".join(pair))
    return " ".join(value.split())  # a line each


def write(rows, outputs):
    """Writes files of a line a row: {path: the row's line}. They get their names when they are complete."""
    parts = {path: open(f"{path}.part", "w", encoding="utf-8", newline="\n") for path in outputs}
    lines = 0
    try:
        for lines, row in enumerate(rows, 1):
            texts = [line(row) for line in outputs.values()]
            for file, text in zip(parts.values(), texts):
                file.write(text + "\n")
    except SystemExit:
        for file in parts.values():
            os.unlink(file.name)
        raise
    for path, file in parts.items():
        file.close()
        os.replace(file.name, path)
    print(f"{', '.join(outputs)}: {lines} lines")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="+")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--columns", default="", help="columns to keep, separated by commas; default: all")
    parser.add_argument("--parallel", default="", help="languages, separated by commas: parallel text, not jsonl")
    parser.add_argument("--limit", type=int, default=0, help="rows; 0: all")
    arguments = parser.parse_args()
    columns = [name for name in arguments.columns.split(",") if name]
    languages = [name for name in arguments.parallel.split(",") if name]
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        fail("pyarrow is not installed", "pip install pyarrow", f"none in {sys.executable}")
    if not languages and arguments.out.suffix != ".jsonl":
        fail("the kind of output is unknown", "--out NAME.jsonl, or --parallel de,en", arguments.out)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    outputs = {f"{arguments.out}.{language}": functools.partial(text_in, language=language) for language in languages}
    write(rows_of(arguments.input, columns, arguments.limit), outputs or {
        str(arguments.out): lambda row: json.dumps(row, ensure_ascii=False, default=as_json)})


if __name__ == "__main__":
    main()
