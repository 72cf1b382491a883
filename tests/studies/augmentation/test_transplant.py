"""Keyword transplant: what is replaced by what, and what stays."""

import pytest

from dana.studies.augmentation.generators import KeywordTransplant, transplant

TEXT = "The court sat. A COURT, no judge; Judges' court?"


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (("court", "court", "judge"), ("film", "actor", "film"), "The film sat. A FILM, no actor; Judges' film?"),
        (("court", "judge"), ("film", "film"), "The film sat. A FILM, no film; Judges' film?"),
        (("court",), ("film", "actor"), "The film sat. A FILM, no judge; Judges' film?"),
        (("the", "judges"), ("that", "actors"), "That court sat. A COURT, no judge; Actors' court?"),
        (("court",), (), TEXT),
        ((), ("film",), TEXT),
    ],
)
def test_each_keyword_is_replaced_wherever_it_stands(old, new, result):
    assert transplant(TEXT, old, new) == result


PAIRS = [(("court",), "one court"), (("judge",), "two judges, a judge"), ((), "no keyword"), (("jury",), "three jury")]


def test_a_text_is_drawn_by_its_own_seed():
    generator = KeywordTransplant().fit(PAIRS, seed=0)
    seeds = list(range(60))
    together = generator.generate([("film",)] * 60, seeds)
    assert together == [generator.generate([("film",)], [seed])[0] for seed in seeds]
    assert set(together) == {"one film", "two judges, a film", "three film"}, "no text without a place for keywords"
    assert set(generator.generate([()] * 60, seeds)) == {text for _, text in PAIRS}
