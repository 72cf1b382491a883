"""Texts made of several fields."""

import pytest
import toy_task
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import ConfigError, DataError
from dana.finetuning.settings import FinetuneSettings
from dana.tasks.card import TaskCard, Template, load_card
from dana.tasks.examples import Example, read_split


def test_fields_are_put_in_their_places():
    template = Template.parse("{title}: {meta.body} ({title}, {{as is}})")
    assert template.fields == ["title", "meta.body"]
    assert template.fill({"title": "a", "meta.body": "b {title}"}) == "a: b {title} (a, {as is})"


@given(st.text())
def test_a_single_field_is_its_value(value):
    assert Template.of_field("x").fill({"x": value}) == value == Template.parse("{x}").fill({"x": value})


@pytest.mark.parametrize("template", ["", "no field", "{", "{}", "{ }", "{a!r}", "{a:>9}", "a } b", "{a"])
def test_what_is_no_template_is_refused(tmp_path, template):
    with pytest.raises(ConfigError, match=r"toy\.yaml: template=.*must be a text with fields in braces"):
        TaskCard.read(toy_task.write_task(tmp_path, template=template))


def test_a_card_s_text_may_be_made_of_several_fields(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path, template="{title}\n{meta.body}")))
    record = {"id": 1, "title": "Birds", "meta": {"body": " a wren "}, "text": "zinc", "label": "bird"}
    toy_task.write_split(tmp_path / "toy", "test", [record])
    assert read_split(card, "test") == [Example("1", "Birds\n a wren", 2)]
    named = FinetuneSettings(text_field="text").fields_of(card)
    assert read_split(named, "test") == [Example("1", "zinc", 2)]


def test_a_template_and_a_field_for_the_text_contradict_each_other(tmp_path):
    with pytest.raises(ConfigError, match=r"toy\.yaml: text='body': must be left out beside template"):
        TaskCard.read(toy_task.write_task(tmp_path, template="{title} {body}", text="body"))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"title": "Birds", "label": "bird"}, r"test\.jsonl:1: no 'body'; found title, label"),
        ({"title": "Birds", "body": 3, "label": "bird"}, r"test\.jsonl:1: 'body' is int, not text"),
        ({"title": " ", "body": "", "label": "bird"}, r"test\.jsonl:1: the text is empty"),
    ],
)
def test_a_record_without_one_of_the_fields_is_named(tmp_path, record, says):
    card = load_card(str(toy_task.write_task(tmp_path, template="{title} {body}")))
    toy_task.write_split(tmp_path / "toy", "test", [record])
    with pytest.raises(DataError, match=says):
        read_split(card, "test")
