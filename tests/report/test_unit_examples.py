"""Example units of a report: which ones, from which sources, between which neighbours."""

import numpy as np
import pyarrow as pa
import pytest

from dana.core.schemas import DOCUMENTS, SCORES, write_parts
from dana.report.page import number
from dana.report.run import read_run
from dana.report.unit_texts import most_extreme

LONG = "{} is a sentence that has more than eight words in it."


@pytest.fixture
def write_scored(tmp_path):
    """Return a function that writes documents (source, [(text, score), ...]) and returns scores and corpus."""

    def write(*documents):
        rows, units = [], []
        for index, (source, sentences) in enumerate(documents):
            doc_id, start = f"d{index}", 0
            rows.append({"doc_id": doc_id, "source": source, "text": " ".join(text for text, _ in sentences)})
            for unit, (text, score) in enumerate(sentences):
                ends = {"start": start, "end": start + len(text)}
                units.append({"doc_id": doc_id, "source": source, "unit": unit, **ends, "score": float(score)})
                start += len(text) + 1
        write_parts([pa.Table.from_pylist(rows, schema=DOCUMENTS)], tmp_path / "corpus", DOCUMENTS)
        return pa.Table.from_pylist(units, schema=SCORES), tmp_path / "corpus"

    return write


def texts_of(side):
    return {examples.source: [unit.text for unit in examples.units] for examples in side}


def sentences(*names):
    return [(LONG.format(name), score) for score, name in enumerate(names)]


def test_neighbours_are_of_the_same_document(write_scored):
    scores, corpus = write_scored(
        ("a", [("One.", 5), ("Two.", 5)]), ("a", [("Three.", 5), *sentences("Four"), ("Five.", 5)])
    )
    relevant, _ = most_extreme(scores, corpus)
    unit = relevant[0].units[0]
    assert (unit.before, unit.text, unit.after) == ("Three.", LONG.format("Four"), "Five.")
    short = [("One.", 5), ("Two.", 5)]
    for documents in ([short, sentences("Three"), [("Four.", 5)]], [sentences("Three")]):
        scores, corpus = write_scored(*(("a", document) for document in documents))
        unit = most_extreme(scores, corpus)[0][0].units[0]
        assert (unit.before, unit.text, unit.after) == ("", LONG.format("Three"), "")


def test_long_neighbours_are_cut_far_from_the_unit(write_scored):
    far = "far " + "x" * 200 + " near"
    scores, corpus = write_scored(("a", [(far, 5), *sentences("It"), (far[::-1], 5)]))
    unit = most_extreme(scores, corpus)[0][0].units[0]
    assert unit.before.startswith("…x")
    assert unit.before.endswith("x near")
    assert unit.after.startswith("raen x")
    assert unit.after.endswith("x…")
    assert len(unit.before) == len(unit.after) == 120


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Default is False.", False),
        ("Incomprehensibilities notwithstanding, internationalisation happened.", False),  # long, six words
        ("* ONE * TWO * THREE * FOUR * FIVE * SIX", False),
        ("We shall go there to see it.", False),
        ("We go to see if it is so.", True),
        ("これは二十文字を超える日本語の文章であり、例として示されるものです。", True),
        ("これは日本語の短い文です、ABCDEFGHIJK。", False),
    ],
)
def test_units_of_fewer_than_eight_words_are_skipped(write_scored, text, counts):
    scores, corpus = write_scored(("a", [(text, -1)]), ("a", sentences("It")))
    assert texts_of(most_extreme(scores, corpus)[0])["a"] == ([text] if counts else []) + [LONG.format("It")]


def test_two_extreme_units_per_source_of_distinct_documents_and_texts(write_scored):
    first, second, third, fourth = (LONG.format(name) for name in ("First", "Second", "Third", "Fourth"))
    scores, corpus = write_scored(
        ("a", [(first, 0), (second, 1)]), ("a", [(first, 2)]), ("a", [(third, 3)]), ("a", [(fourth, 4)])
    )
    relevant, foreign = most_extreme(scores, corpus)
    assert texts_of(relevant) == {"a": [first, third]}
    assert [unit.note for unit in relevant[0].units] == ["score 0.000", "score 3.000"]
    assert texts_of(foreign) == {"a": [fourth, third]}


def test_sources_with_most_selected_or_dropped_text_come_first(write_scored):
    documents = [(name, sentences(*(f"{name}{number}" for number in range(3)))) for name in "abcdef"]
    scores, corpus = write_scored(*documents)
    weights = np.repeat([0.0, 0.1, 0.5, 1.0, 0.9, 0.8], 3)
    relevant, foreign = most_extreme(scores, corpus, weights)
    assert list(texts_of(relevant)) == ["d", "e", "f", "c"]
    assert list(texts_of(foreign)) == ["a", "b", "c", "f"]
    assert [unit.note for unit in relevant[3].units] == ["score 0.000, weight 0.5"]
    only = most_extreme(scores, corpus, np.repeat([1.0, 0, 0, 0, 0, 0], 3))[0]
    assert list(texts_of(only)) == ["a"]


def test_without_weights_sources_with_extreme_units_come_first(write_scored):
    documents = [(name, [(LONG.format(name), score)]) for name, score in zip("abcde", (3, -2.5, 0, 4, 1), strict=True)]
    relevant, foreign = most_extreme(*write_scored(*documents))
    assert list(texts_of(relevant)) == ["b", "c", "e", "a"]
    assert list(texts_of(foreign)) == ["d", "a", "e", "c"]
    assert relevant[0].units[0].note == "score −2.500"


def test_a_source_without_readable_units_is_skipped(write_scored):
    documents = [
        (name, [("Yes.", score)] * 30 if name in "ab" else sentences(name)) for score, name in enumerate("abcdef")
    ]
    scores, corpus = write_scored(*documents)
    assert list(texts_of(most_extreme(scores, corpus, np.ones(64))[0])) == ["c", "d", "e", "f"]


def test_no_readable_unit_no_example(write_scored, tmp_path):
    scores, corpus = write_scored(("a", [("Yes.", 0)]))
    assert most_extreme(scores, corpus) == ((), ())
    assert most_extreme(scores, tmp_path / "elsewhere") == ((), ())
    assert most_extreme(scores.slice(0, 0), corpus) == ((), ())


def test_examples_of_a_run(whole_run):
    frames = read_run(whole_run).scores
    assert next(iter(texts_of(frames.relevant))) == "target (planted)"
    lowest, highest = (number(end) for end in frames.units["score"].agg(["min", "max"]))
    assert frames.relevant[0].units[0].note == f"score {lowest}, weight 1"
    assert f"score {highest}, weight 0" in {examples.units[0].note for examples in frames.foreign}
