import numpy as np
import pytest

from dana.core.errors import DataError
from dana.core.schemas import Document
from dana.studies.comparison.planting import (
    PLANTED,
    choose_documents,
    cut_to,
    is_lower_cased,
    normalise_surface,
    pool_of,
    shares_of,
    split_texts,
)
from tests.studies.comparison.toy_texts import BAKING, OTHERS, sentence


def documents(vocabulary, count, source="task", sentences=1, seed=0, longest=40):
    random = np.random.default_rng(seed)
    return [
        Document(
            f"{source}-{row}",
            source,
            " ".join(sentence(vocabulary, random, int(random.integers(6, longest))) for _ in range(sentences)),
        )
        for row in range(count)
    ]


def test_parts_share_no_text_and_no_near_duplicate():
    texts = documents(BAKING, 300)
    twins = [Document(f"twin-{row}", "task", f"{texts[row].text} Indeed.") for row in range(0, 300, 2)]
    parts = split_texts([*texts, *twins], False, 60, "toy")
    assert len(parts["plants"]) == 60
    assert len(parts["held_out"]) == 30
    ids = {name: {row.doc_id.split("-")[1] for row in parts[name]} for name in ("plants", "held_out", "fit")}
    assert not ids["plants"] & ids["held_out"]
    assert not (ids["plants"] | ids["held_out"]) & ids["fit"]
    assert len(ids["plants"]) == 60  # no two plants are twins


def test_of_a_large_group_of_near_duplicates_no_text_is_planted():
    same = "the dough of the oven and the flour of the yeast"
    texts = [
        Document(f"copy-{row}", "task", f"{same} {chr(97 + row // 26)}{chr(97 + row % 26)} again") for row in range(100)
    ]
    parts = split_texts([*documents(BAKING, 120), *texts], False, 20, "toy")
    assert not [row for row in [*parts["plants"], *parts["held_out"]] if row.doc_id.startswith("copy")]
    assert sum(row.doc_id.startswith("copy") for row in parts["fit"]) == 100


@pytest.mark.parametrize(
    "texts", [documents(BAKING, 3), [Document(str(row), "task", "One text.") for row in range(99)]]
)
def test_a_task_of_three_texts_or_of_one_text_many_times_is_refused(texts):
    with pytest.raises(DataError, match="task toy: "):
        split_texts(texts, False, 60, "toy")


def general(sentences=8):
    return [row for name, words in OTHERS.items() for row in documents(words, 120, name, sentences, len(name), 60)]


def lengths(pool):
    """Words of the plants and of the other documents."""
    parts = ([], [])
    for row in pool:
        parts[not row.source.endswith(PLANTED)].append(len(row.text.split()))
    return np.array(parts[0]), np.array(parts[1])


def longer(one, two):
    """Probability that one of the second is longer than one of the first, ties by half: 0.5 tells nothing."""
    return (two[:, None] > one).mean() + 0.5 * (two[:, None] == one).mean()


def test_pieces_have_the_lengths_of_the_plants_and_come_evenly_from_the_sources():
    pool = pool_of(documents(BAKING, 90, longest=25), general(), False, 300, "en")
    assert {name: sum(row.source == name for row in pool) for name in OTHERS} == dict.fromkeys(OTHERS, 100)
    one, two = lengths(pool)
    assert np.abs(np.quantile(one, np.arange(0.1, 1, 0.1)) - np.quantile(two, np.arange(0.1, 1, 0.1))).max() <= 2
    assert abs(longer(one, two) - 0.5) < 0.03


def test_a_small_source_gives_all_it_has_and_the_others_the_rest():
    assert shares_of({"small": 5, "one": 100, "two": 100}, 65) == {"small": 5, "one": 30, "two": 30}
    with pytest.raises(DataError, match="others=300: must be at most 205"):
        shares_of({"small": 5, "one": 100, "two": 100}, 300)


def test_documents_are_long_enough_and_taken_once():
    sizes = np.array([5, 50, 9, 30, 12])
    rows = choose_documents(sizes, np.array([40, 10, 25]), "any")
    assert len(set(rows)) == 3
    assert all(sizes[rows] >= [40, 10, 25])
    assert choose_documents(sizes, np.array([99]), "any")[0] == 1  # none is: the longest


def test_a_piece_is_whole_sentences_where_they_fit_and_words_where_none_does():
    text = "One two three four five six. Seven eight nine. Ten."
    assert cut_to(text, 3) == "Seven eight nine."
    assert cut_to(text, 4) == "Seven eight nine. Ten."
    assert cut_to("One two three four five six seven.", 3) == "One two three"
    assert cut_to("One two.", 9) == "One two."


def test_neither_name_nor_place_tells_a_plant():
    plants = documents(BAKING, 40)
    pool = pool_of(plants, general(), False, 160, "en")
    positions = [position for position, row in enumerate(pool) if row.source == f"task{PLANTED}"]
    assert len(positions) == 40
    assert 60 < np.mean(positions) < 140
    assert not {row.doc_id for row in pool} & {row.doc_id for row in plants}
    assert [row.doc_id for row in pool] == sorted(row.doc_id for row in pool)


def test_a_piece_with_the_words_of_a_plant_is_left_out():
    plants, others = documents(BAKING, 40, longest=7), documents(BAKING, 40, "copies", longest=7)  # of six words each
    assert len(pool_of(plants, others, False, 40, "en")) == 40


@pytest.mark.parametrize(
    ("as_distributed", "plain"),
    [
        ("<< EGFR >> inhibitors ( [[ gefitinib ]] ) , 12.5 mg .", "EGFR inhibitors (gefitinib), 12,500 mg."),
        ("The @ - to @-month rate was @.@ % ( p < @ ) .", "The 3 - to 6-month rate was 4.5% (p < 0.05)."),
        ("he said `` it 's sure they do n't '' -- yes .", "he said “it’s sure they don't” — yes."),
        ("<e1>cats</e1> &amp; -LRB- dogs -RRB-", "cats & (dogs)"),
    ],
)
def test_text_as_a_task_distributes_it_and_as_people_write_it_become_the_same(as_distributed, plain):
    assert normalise_surface(as_distributed) == normalise_surface(plain)


def test_all_is_lower_cased_where_the_task_is():
    assert is_lower_cased(["a film of some wit", "no plot at all"])
    assert not is_lower_cased(["A film of some wit.", "No plot at all."])
    assert normalise_surface("A Film", lower=True) == "a film"
