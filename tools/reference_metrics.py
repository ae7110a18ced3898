#!/usr/bin/env python3
"""Reference scores for tests/metrics: sacreBLEU, rouge_score and NLTK's Porter stemmer on corrupted references.

  reference_metrics.py scores DATA OUT   writes OUT/<case>.hyp, OUT/<case>.ref<r> and OUT/expected.json
  reference_metrics.py porter DATA OUT   writes OUT/stems.tsv: every word type of DATA and its stem
  reference_metrics.py tokens DATA OUT   writes OUT/tokens.json: awkward lines, and what sacreBLEU's tokenizers make of
                                         them

DATA is the folder ../shared/data. Everything is seeded; a text's newlines are written as a literal \\n.
"""

import json
import random
import re
import sys
from pathlib import Path

import regex
from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU, CHRF

TOKENIZERS = ("13a", "none", "char", "zh")
SCRIPTS = [
    "我们明天去北京看长城，天气应该很好。",
    "東京は日本の首都であり、人口は約1,400万人です。",
    "السلام عليكم، كيف حالك اليوم؟ عندي ١٢٣٫٥ درهم.",
    "Привет, мир! Это предложение написано кириллицей — и с тире.",
    "한국어 문장도 하나 있어야 합니다: 3.14입니다.",
    "🎉🎉 Party at 7:30-9.00 pm, <skipped> bring $5.00 & 👨‍👩‍👧‍👦!",
    "He said &quot;hi&quot; &amp; left at 3.5%, i.e. 1,000.50-2,000 (or more)...",
    "Don't-stop x-ray 5-year U.S.A. e.g. a.b, c,d ,5 .5 5. 5, -5- [a]{b}`c`~d^e_f|g",
    "Zero\u00a0width\u2003space\u3000and\u2028line K\u212a \u0130stanbul ﬁne",
    "été naïve Straße ÄÖÜ ß œuvre ½ ² Ⅳ",
    "हिन्दी में एक वाक्य, और कुछ शब्द।",
    "(hi) \"quoted\" 'single' word! ?? !! . a, b; c: d",
]


def corrupt(text, rng, rate):
    """Drops, swaps, doubles and replaces words, or characters where there are no words."""
    spaced = " " in text
    units = text.split(" ") if spaced else list(text)
    result = []
    for i, unit in enumerate(units):
        draw = rng.random()
        if draw < rate * 0.3:
            continue
        if draw < rate * 0.5 and result:
            result.insert(-1, unit)
        elif draw < rate * 0.7:
            result += [unit, unit]
        elif draw < rate:
            result.append(rng.choice(units))
        else:
            result.append(unit)
    return (" " if spaced else "").join(result)


def lines_of(path, limit):
    with open(path, encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\r\n") for line, _ in zip(file, range(limit))]


def cases(data):
    rng = random.Random(20260101)
    for name, path, limit, rate in [
        ("multi30k_en", "multi30k/test_2016_flickr.en", 1000, 0.3),
        ("multi30k_de", "multi30k/test_2016_flickr.de", 1000, 0.5),
        ("iwslt_de", "iwslt2017_de_en/valid.de", 300, 0.2),
        ("tatoeba_en", "tatoeba_deu_eng/test.en", 500, 0.6),
        ("lm1b", "lm1b/1b_benchmark.dev.tokens", 300, 0.1),
    ]:
        reference = lines_of(data / path, limit)
        yield name, [corrupt(line, rng, rate) for line in reference], [[line] for line in reference]
    yield "scripts", [corrupt(line, rng, 0.3) for line in SCRIPTS], [[line] for line in SCRIPTS]
    yield "scripts_two", SCRIPTS, [[corrupt(line, rng, 0.5), corrupt(line, rng, 0.2)] for line in SCRIPTS]
    three = [json.loads(line) for line in lines_of(data / "dialogsum/dialogsum.test.jsonl", 300)]
    references = [[row[f"summary{i}"].replace("\r", "") for i in (1, 2, 3)] for row in three]
    yield "dialogsum", [corrupt(row[0], rng, 0.3) for row in references], references
    dev = [json.loads(line) for line in lines_of(data / "scitldr_a/dev.jsonl", 60)]
    abstracts = ["\n".join(row["source"]).replace("\r", "") for row in dev]
    shuffled = []
    for text in abstracts:
        sentences = [corrupt(sentence, rng, 0.3) for sentence in text.split("\n")]
        rng.shuffle(sentences)
        shuffled.append("\n".join(sentences[: max(1, len(sentences) - 1)]))
    yield "scitldr", shuffled, [[text] for text in abstracts]
    empty = ["", "a b", "only one", "", "x"]
    yield "empty", empty, [[""], ["a b"], [""], ["words here"], ["."]]
    yield "no_match", ["a b c d e", "f g h i j"], [["k l m n o"], ["p q r s t"]]
    yield "too_short", ["a b", "c"], [["a b"], ["c"]]


def scores_of(hypotheses, references):
    streams = [list(stream) for stream in zip(*references)]
    result = {}
    metrics = {f"bleu_{tokenizer}": BLEU(tokenize=tokenizer) for tokenizer in TOKENIZERS}
    for name, metric in {**metrics, "chrf_0": CHRF(word_order=0), "chrf_2": CHRF(word_order=2)}.items():
        score = metric.corpus_score(hypotheses, streams)
        result[name] = score.score
        if name.startswith("bleu"):
            result[name + "_text"] = re.sub(r"^BLEU = ", "", str(score))
        else:
            result[name + "_name"] = score.name
        result[name + "_signature"] = str(metric.get_signature())
    types = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorers = {"": rouge_scorer.RougeScorer(types), "_stemmed": rouge_scorer.RougeScorer(types, use_stemmer=True)}
    for suffix, scorer in scorers.items():
        lines = [scorer.score_multi(r, h) for h, r in zip(hypotheses, references)]
        for kind in types:
            values = [[line[kind].precision, line[kind].recall, line[kind].fmeasure] for line in lines]
            result[kind + suffix] = [sum(column) / len(lines) for column in zip(*values)]
    return result


def bleu_tokens(metric, text):
    return metric._preprocess_segment(text).split()


def write_lines(path, texts):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(text.replace("\n", "\\n") + "\n" for text in texts)


def write_scores(data, out):
    expected = {}
    for name, hypotheses, references in cases(data):
        write_lines(out / f"{name}.hyp", hypotheses)
        for r, stream in enumerate(zip(*references)):
            write_lines(out / f"{name}.ref{r}", stream)
        expected[name] = {"references": len(references[0]), **scores_of(hypotheses, references)}
    (out / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")


def write_stems(data, out):
    words = set()
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.suffix in {".en", ".de", ".jsonl", ".tokens", ".raw", ".txt"}:
            words.update(re.findall(r"[a-z0-9]+", path.read_text(encoding="utf-8", errors="replace").lower()))
    stemmer = PorterStemmer()
    with open(out / "stems.tsv", "w", encoding="utf-8") as file:
        file.writelines(f"{word}\t{stemmer.stem(word)}\n" for word in sorted(words))


def awkward_lines(data):
    """SCRIPTS, ends and runs of white space, random mixtures, real text, and most characters between letters and digits."""
    rng = random.Random(20260102)
    yield from SCRIPTS
    yield from ["", " ", "\n", "\u3000", " a ", "\u00a0a\u2003", ".", ",a", "a.", "1.", "-", "1-", "'s", "it's", "a's.",
                "a\n-b", "a-\nb", "a\nb", "&amp;lt;", "&quot", "<skipped>", "<skip<skipped>ped>", "Σίσυφος ΟΔΟΣ ΣΑΣ Σ",
                "１，２３４．５６％", "1٬234٫5", "a१.२b", "e\u0301.e\u0301,1\u0301.2", "𠀀𠮷，𪜶。㐀㍿①", "「すみません」、東京タワー…",
                "｢ｶﾅ｣･ｰ", "「한국어」 3,000원.", "x²·½—y‘s’", "İIıi ẞß ǅ ΐ"]
    pieces = [*"aZß09.,-'’!?;:()\"&/~`^ \t\n\u3000、。，！「」…—–€$％１２３①½²Ⅳ长城東あア한ー्́🎉👨\u200d𠀀𪛖", "'s ", "1.5", "&lt;",
              "\n-", "-\n", "<skipped>", "テスト", "中文", "도시"]
    for _ in range(400):
        yield "".join(rng.choices(pieces, k=rng.randint(1, 30)))
    for name in ("multi30k/test_2016_flickr.de", "tatoeba_deu_eng/test.en", "iwslt2017_de_en/valid.de"):
        yield from lines_of(data / name, 100)
    rare = regex.compile(r"[\p{Lo}\p{Co}\p{Cn}\p{Cs}]")  # each 97th of these will do
    shown = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and (c % 97 == 0 or not rare.match(chr(c)))]
    for begin in range(0, len(shown), 64):
        yield " ".join(f"x{c}1{c}2{c}y {c}" for c in shown[begin:begin + 64])


def write_tokens(data, out):
    lines = list(awkward_lines(data))
    metrics = {name: BLEU(tokenize=name) for name in TOKENIZERS}
    result = {"lines": lines, "bleu": {name: [" ".join(bleu_tokens(metric, line)) for line in lines]
                                       for name, metric in metrics.items()}}
    (out / "tokens.json").write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")


WRITERS = {"scores": write_scores, "porter": write_stems, "tokens": write_tokens}

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in WRITERS:
        sys.exit(__doc__)
    output = Path(sys.argv[3])
    output.mkdir(parents=True, exist_ok=True)
    WRITERS[sys.argv[1]](Path(sys.argv[2]), output)
