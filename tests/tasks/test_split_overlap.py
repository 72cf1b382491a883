"""Texts that splits repeat or share."""

from dana.core.schemas import Document
from dana.tasks.examples import Example
from dana.tasks.tables import corpus_row, overlap_rows

LONG = [f"w{at}" for at in range(20)]


def split(name, *texts):
    """Examples of texts, or of pairs of text and label."""
    pairs = [text if isinstance(text, tuple) else (text, 0) for text in texts]
    return [Example(f"{name}{at}", text, label) for at, (text, label) in enumerate(pairs)]


def sentence(*changed):
    return " ".join("changed" if at in changed else word for at, word in enumerate(LONG))


def found(splits):
    return {
        (row["split"], row["within"], row["kind"]): (row["examples"], row["of"], row["ids"])
        for row in overlap_rows(splits)
    }


def test_repeats_within_a_split_are_counted_once_less_and_contradictions_all():
    train = split("t", "a", "b", "a", ("a", 1), "c", "b")
    rows = found({"train": train, "dev": split("d", "x"), "test": split("e", "y")})
    assert rows["train", "train", "exact"] == (3, 6, "t2 = t0, t3 = t0, t5 = t1")
    assert rows["train", "train", "contradicting"] == (3, 6, "t0 = t3, t2 = t3, t3 = t0")
    assert rows["dev", "dev", "exact"] == (0, 1, "")


def test_texts_of_one_split_in_another_are_found_with_the_first_that_they_match():
    train = split("t", "p q r s", ("x y z", 1), "x y z", "other")
    rows = found({"train": train, "dev": split("d", "x y z", "own"), "test": split("e", "own", "p q r s", "x y z")})
    assert rows["dev", "train", "exact"] == (1, 2, "d0 = t1")
    assert rows["dev", "train", "contradicting"] == (1, 2, "d0 = t1")
    assert rows["test", "train", "exact"] == (2, 3, "e1 = t0, e2 = t1")
    assert rows["test", "train", "contradicting"] == (1, 3, "e2 = t1")
    assert rows["test", "dev", "exact"] == (2, 3, "e0 = d1, e2 = d0")
    assert len(rows) == 3 * 2 + 3 * 2


def test_at_most_three_are_named():
    same = [str(at) for at in range(5)]
    rows = found({"train": split("t", *same), "dev": split("d", "x"), "test": split("e", *same)})
    assert rows["test", "train", "exact"] == (5, 5, "e0 = t0, e1 = t1, e2 = t2")


def test_a_corpus_is_searched_for_each_test_text():
    shared = " ".join(LONG)
    test = split("e", "something else entirely, which nobody wrote before", shared, f"Before it. {shared.upper()}!")
    corpus = [Document("p", "s", "nothing"), Document("q", "s", f"more and {shared}"), Document("r", "s", shared)]
    row = corpus_row(test, iter(corpus))
    assert row == {
        "split": "test",
        "examples": 2,
        "of": 3,
        "share": 2 / 3,
        "documents": 2,
        "of_documents": 3,
        "ids": "e1 = q, e2 = q",
    }


def test_more_test_texts_than_sixteen_bits_count():
    test = [Example(str(at), f"number {at} {sentence(at % 20)}", 0) for at in range(33_000)]
    corpus = [Document("p", "s", f"it says number 32999 {sentence(32_999 % 20)}")]
    assert corpus_row(test, corpus)["ids"].endswith("= p")


def test_runs_that_are_shorter_than_thirteen_words_and_no_sentence_do_not_count():
    corpus = [Document("p", "s", " ".join(LONG[:12]) + " and so on")]
    assert corpus_row(split("e", sentence()), corpus)["examples"] == 0
