import pytest

from dana.studies.comparison.surface import Surface


@pytest.mark.parametrize(
    ("distributed", "plain"),
    [
        ("<< EGFR >> inhibitors ( [[ gefitinib ]] ) , 12.5 mg .", "EGFR inhibitors (gefitinib), 12,500 mg."),
        ("The @ - to @-month rate was @.@ % ( p < @ ) .", "The 3 - to 6-month rate was 4.5% (p < 0.05)."),
        ("he said `` it 's sure they do n't '' -- yes .", "he said “it’s sure they don't” — yes."),
        ("<e1>cats</e1> &amp; -LRB- dogs -RRB-", "cats & (dogs)"),
    ],
)
def test_text_as_a_task_distributes_it_and_as_people_write_it_become_the_same(distributed, plain):
    assert Surface().apply(distributed) == Surface().apply(plain)


def test_words_and_accents_stay_and_line_ends_and_the_last_stop_go():
    assert Surface().apply("One naïve idea.\n\nA second one!") == "One naïve idea. A second one"


def test_all_is_lower_cased_where_the_task_is():
    assert Surface.of_task(["a film of some wit", "no plot at all"]) == Surface(lower=True)
    assert Surface.of_task(["A film of some wit.", "No plot at all."]) == Surface(lower=False)
    assert Surface(lower=True).apply("A Film") == "a film"
