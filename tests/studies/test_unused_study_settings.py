"""A setting that a study's command would ignore is refused, and accepted where it is looked at."""

import pytest

from dana.core.studies import loaded
from tests.cli.test_unused import CASES as CORE_CASES
from tests.cli.test_unused import refuse, without_case
from tests.cli.test_unused import texts as texts  # a fixture

CASES = [
    ("topics fit --set selection.encoder=hashing", "selection.encoder", None),
    ("topic-gap toy --set finetune.save=true", "finetune.save", None),
    ("topic-gap toy --topics-of run --topics-k 5", "--topics-k", "topic_gap.topics_of=null"),
    ("few-shot toy --topics-of run --topics-k 5", "--topics-k", "topic_gap.topics_of=null"),
    ("few-shot toy --set topic_gap.n=[3]", "topic_gap.n", None),
    ("few-shot toy --set finetune.epochs=3", "finetune.epochs", None),
]


@pytest.mark.parametrize(("line", "ignored", "cure"), CASES)
def test_what_a_study_would_ignore_is_refused(line, ignored, cure, texts):
    refuse(line, ignored, cure)


def test_every_rule_of_a_study_has_a_case():
    rules = [rule for unused in loaded("unused") for rules in unused.values() for rule in rules]
    assert rules
    assert not without_case(rules, [*CORE_CASES, *CASES])
