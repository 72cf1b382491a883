"""Example units of a report: which ones, from which sources, between which neighbours."""

import numpy as np
import pyarrow as pa
import pytest

from dana.core.schemas import DOCUMENTS, SCORES, write_parts
from dana.report.page import number
from dana.report.unit_texts import is_readable, most_extreme

LONG = "{} is a sentence that has more than eight words in it."


@pytest.fixture
def examples(tmp_path):
    """Examples of documents (source, [(text, score), ...]) with a weight for each unit."""

    def choose(*documents, weights=None):
        rows, units = [], []
        for index, (source, sentences) in enumerate(documents):
            key, start = {"doc_id": f"d{index}", "source": source}, 0
            rows.append({**key, "text": " ".join(text for text, _ in sentences)})
            for unit, (text, score) in enumerate(sentences):
                end = start + len(text)
                units.append(
                    {
                        **key,
                        "unit": unit,
                        "start": start,
                        "end": end,
                        "score": float(score),
                        "short": False,
                    }
                )
                start = end + 1
        write_parts([pa.Table.from_pylist(rows, schema=DOCUMENTS)], tmp_path / "pool", DOCUMENTS)
        return most_extreme(pa.Table.from_pylist(units, schema=SCORES), tmp_path / "pool", weights)

    return choose


def texts_of(side):
    return {examples.source: [unit.text for unit in examples.units] for examples in side}


def sentences(*names):
    return [(LONG.format(name), score) for score, name in enumerate(names)]


def test_neighbours_are_of_the_same_document_and_cut_far_from_the_unit(examples):
    short, far = [("One.", 5), ("Two.", 5)], "far " + "x" * 200 + " near"
    for documents, before, after in (
        ([short, [("Three.", 5), *sentences("It"), ("Five.", 5)]], "Three.", "Five."),
        ([short, sentences("It"), [("Four.", 5)]], "", ""),
        ([sentences("It")], "", ""),
        (
            [[(far, 5), *sentences("It"), (far[::-1], 5)]],
            "…" + "x" * 114 + " near",
            "raen " + "x" * 114 + "…",
        ),
    ):
        unit = examples(*(("a", document) for document in documents))[0][0].units[0]
        assert (unit.before, unit.text, unit.after) == (before, LONG.format("It"), after)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Default is False.", False),
        (
            "Incomprehensibilities notwithstanding, internationalisation happened.",
            False,
        ),  # long, six words
        ("* ONE * TWO * THREE * FOUR * FIVE * SIX", False),
        ("We shall go there to see it.", False),
        ("We go to see if it is so.", True),
        ("これは二十文字を超える日本語の文章であり、例として示されるものです。", True),
        ("これは日本語の短い文です、ABCDEFGHIJK。", False),
    ],
)
def test_units_of_fewer_than_eight_words_are_skipped(text, counts):
    assert is_readable(text) is counts


def test_two_extreme_units_per_source_of_distinct_documents_and_texts(examples):
    [first, second, third, fourth] = sentences("First", "Second", "Third", "Fourth")
    short = ("Incomprehensibilities notwithstanding.", -1)
    units = [short, first, second], [(first[0], 2)], [third], [fourth]
    relevant, foreign = examples(*(("a", document) for document in units))
    assert texts_of(relevant) == {"a": [first[0], third[0]]}
    assert [unit.note for unit in relevant[0].units] == ["score 0.000", "score 2.000"]
    assert texts_of(foreign) == {"a": [fourth[0], third[0]]}


def test_sources_with_most_selected_or_dropped_text_come_first(examples):
    documents = [
        (name, sentences(*(f"{name}{number}" for number in range(3)))) for name in "abcdef"
    ]
    relevant, foreign = examples(*documents, weights=np.repeat([0.0, 0.1, 0.5, 1.0, 0.9, 0.8], 3))
    assert list(texts_of(relevant)) == ["d", "e", "f", "c"]
    assert list(texts_of(foreign)) == ["a", "b", "c", "f"]
    assert [unit.note for unit in relevant[3].units] == ["score 0.000, weight 0.5"]
    relevant, _ = examples(*documents, weights=np.repeat([1.0, 0, 0, 0, 0, 0], 3))
    assert list(texts_of(relevant)) == ["a"]


def test_without_weights_sources_with_extreme_units_come_first(examples):
    documents = [
        (name, [(LONG.format(name), score)])
        for name, score in zip("abcde", (3, -2.5, 0, 4, 1), strict=True)
    ]
    relevant, foreign = examples(*documents)
    assert list(texts_of(relevant)) == ["b", "c", "e", "a"]
    assert list(texts_of(foreign)) == ["d", "a", "e", "c"]
    assert relevant[0].units[0].note == "score −2.500"


def test_a_source_without_readable_units_is_skipped(examples):
    documents = [
        (name, [("Yes.", 0)] * 30 if name in "ab" else sentences(name)) for name in "abcdef"
    ]
    assert list(texts_of(examples(*documents, weights=np.ones(64))[0])) == ["c", "d", "e", "f"]
    assert examples(("a", [("Yes.", 0)])) == ((), ())


def test_examples_of_a_run(frames, tmp_path):
    scores = frames.scores
    assert next(iter(texts_of(scores.relevant))) == "science"
    lowest, highest = (number(end) for end in scores.units["score"].agg(["min", "max"]))
    assert scores.relevant[0].units[0].note == f"score {lowest}, weight 1"
    assert f"score {highest}, weight 0" in {examples.units[0].note for examples in scores.foreign}
    assert most_extreme(SCORES.empty_table(), tmp_path) == ((), ()), "no pool"
