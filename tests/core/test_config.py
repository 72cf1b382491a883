"""Settings are filled from YAML and overrides; a wrong one is refused by its key and value."""

import re
from dataclasses import field, make_dataclass
from typing import Annotated

import pytest
from pydantic import Field

from dana.core.config import read_yaml
from dana.core.errors import ConfigError
from dana.core.settings import (
    Bool,
    Count,
    Float,
    Int,
    OneOf,
    find_setting,
    load,
    range_of,
    settings_model,
)
from dana.corpus.inputs import Inputs
from dana.stages.settings import RunSettings


@settings_model
class Inner:
    """Nested settings."""

    steps: Count = 10
    """Number of steps."""
    rate: Float = 0.1


@settings_model
class Outer:
    """Settings."""

    name: str
    inner: Inner = field(default_factory=Inner)
    files: list[str] = field(default_factory=list)
    limit: Int | None = None
    quick: Bool = False
    extra: Inner | None = None


def test_overrides_come_after_yaml_and_defaults():
    values = {"name": "a", "inner": {"steps": 3}}
    settings = load(Outer, values, ["inner.steps=4", "limit=7", "files=[x, y]", "quick=true"])
    assert settings == Outer("a", Inner(4, 0.1), ["x", "y"], 7, True)
    assert values == {"name": "a", "inner": {"steps": 3}}, "not changed"
    assert load(Outer, {}, ["name=knn:k=10", "inner.rate=0.5"]) == Outer("knn:k=10", Inner(10, 0.5))
    assert load(Outer, {"name": "a", "extra": {"steps": 2}}).extra == Inner(2)


RANGES = [
    (Count, "at least 1", [1], [0, -1]),
    (Annotated[Float, Field(gt=0)], "above 0", [1e-9], [0]),
    (Annotated[Float, Field(gt=0, le=1)], "in (0, 1]", [0.5, 1], [0, 1.1]),
    (Annotated[Float, Field(ge=0, lt=1)] | None, "in [0, 1), or null", [0, None], [1]),
    (Annotated[Int, Field(ge=1, le=2**63 - 1)], f"from 1 to {2**63 - 1}", [2**63 - 1], [0, 2**63]),
    (Annotated[str, OneOf(("a", "b"))], "one of a, b", ["a"], ["c", ""]),
    (
        Annotated[list[Count], Field(min_length=1)],
        "a list of at least 1, each at least 1",
        [[2]],
        [[]],
    ),
]


@pytest.mark.parametrize(("hint", "allowed", "good", "bad"), RANGES)
def test_fields_have_ranges_and_choices(hint, allowed, good, bad):
    model = settings_model(make_dataclass("Settings", [("key", hint)]))
    assert range_of(hint) == allowed
    for value in good:
        assert model(value).key == load(model, {"key": value}).key == value
    for value in bad:
        message = re.escape(f"key={value!r}: must be {allowed}")
        with pytest.raises(ConfigError, match=message):
            model(value)
        with pytest.raises(ConfigError, match=message):
            load(model, {"key": value})


def test_the_help_of_a_setting_is_the_string_below_its_field():
    setting = find_setting(Outer, "inner.steps")
    assert (setting.help, setting.default) == ("Number of steps", 10)


def test_settings_of_one_class_share_no_list():
    settings, other = load(RunSettings, {}), load(RunSettings, {})
    settings.cards.append("one")
    settings.inputs.text_field.append("two")
    assert load(RunSettings, {}) == other == RunSettings()


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"nmae": "a"}, ("r.yaml", "'nmae'", "did you mean 'name'?", "extra, files, inner")),
        (
            {"name": "a", "inner": {"stepps": 3}},
            ("'inner.stepps'", "did you mean 'steps'?", "rate, steps"),
        ),
        ({"name": "a", "extra": {"stepz": 1}}, ("'extra.stepz'", "'steps'")),
        ({"name": "a", "inner": 3}, ("inner=3",)),
        ({"name": "a", "limit": "many"}, ("limit='many'", "a whole number or null")),
        ({"name": "a", "inner": {"steps": "soon"}}, ("inner.steps='soon'", "a whole number")),
        ({"name": "a", "inner": {"steps": 0}}, ("r.yaml", "steps=0", "at least 1")),
        ({"name": "a", "extra": {"steps": 0}}, ("steps=0", "at least 1")),
        ({"name": "a", "inner": {"rate": ".nan"}}, ("inner.rate='.nan'",)),
        ({"name": "a", "extra": {"rate": float("nan")}}, ("extra.rate=nan",)),
        *(({"name": value}, (f"name={value!r}",)) for value in ([], "a\0b", "\ud800")),
        ({}, ("'name'",)),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(values, names):
    """So is a wrong value, with what is allowed."""
    with pytest.raises(ConfigError) as error:
        load(Outer, values, origin="r.yaml")
    assert [name for name in names if name not in str(error.value)] == []
    assert "\n" not in str(error.value)


ODD = [
    "2020-99-99",
    "!!int x",
    "9" * 5000,
    "[" * 9000,
    "!!binary x",
    "!!timestamp x",
    "{[a]: b}",
    "!!bool maybe",
]


@pytest.mark.parametrize("value", ODD, ids=[value[:20] for value in ODD])
def test_a_value_on_which_the_parser_raises_an_error_of_its_own_is_named(tmp_path, value):
    with pytest.raises(ConfigError, match=f"'name={re.escape(value[:9])}.*: not YAML: ."):
        load(Outer, {}, [f"name={value}"])
    (tmp_path / "x.yaml").write_text(f"name: {value}")
    with pytest.raises(ConfigError, match=r"x\.yaml: not YAML: ."):
        read_yaml(tmp_path / "x.yaml")


def test_a_setting_of_text_takes_what_yaml_reads_as_a_number_a_date_or_a_switch():
    for value in ("2024", "1.5", "no", "2020-01-01", "1e3"):
        assert load(Outer, {"name": "x"}, [f"name={value}"]).name == value
    assert load(Outer, {"name": "x"}, ['name="a b"', "limit=3"]) == Outer("a b", limit=3)


@pytest.mark.parametrize("text", ["name: a\nname: b", "name: a\ninner: {steps: 1, steps: 2}"])
def test_a_key_that_comes_twice_is_refused(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(
        ConfigError, match=r"x\.yaml:\d: not YAML: the key '(name|steps)' comes twice"
    ):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}")
    assert read_yaml(tmp_path / "x.yaml")["b"] == {"x": 2}


@pytest.mark.parametrize(
    "override", ["name.x=1", "name", "files=[x", "inner.rate=nan", "limit=1:30"]
)
def test_a_wrong_override_is_named(override):
    with pytest.raises(ConfigError) as error:
        load(Outer, {"name": "a"}, [override])
    assert override.partition("=")[0] in str(error.value)


@pytest.mark.parametrize("key", ["detector", "arms", "adapt.seed"])
def test_null_is_refused_where_a_setting_has_no_such_value(key):
    with pytest.raises(ConfigError, match=f"{key}=null"):
        load(RunSettings, {}, [f"{key}=null"])
    assert load(RunSettings, {}, ["model=null", "adapt.steps=null"]) == RunSettings()


@pytest.mark.parametrize(
    ("content", "location"),
    [
        (b"a: 1\nb: [x\nc: 2\n", "x.yaml:3"),
        (b"- a\n", "x.yaml"),
        (b"a: \xff\xfe\n", "x.yaml"),
        (None, "x.yaml"),
    ],
)
def test_yaml_files_are_read_and_bad_ones_located(tmp_path, content, location):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\nb: [x]\n")
    assert read_yaml(path) == {"a": 1, "b": ["x"]}
    path.write_bytes(content) if content else path.unlink()
    with pytest.raises(ConfigError, match=f"{location}: "):
        read_yaml(path)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("inputs.separator=,", "separator", ","),
        ("inputs.separator=|", "separator", "|"),
        ("inputs.separator=#", "separator", "#"),
        ("inputs.separator=~", "separator", None),
    ],
)
def test_a_text_that_is_no_yaml_is_taken_as_it_is_written(override, key, value):
    settings = load(RunSettings, {}, overrides=[override])
    assert getattr(settings.inputs, key) == value


def test_a_value_that_holds_itself_is_refused_in_words():
    arms = []
    arms.append(arms)
    with pytest.raises(ConfigError, match="holds itself"):
        load(RunSettings, {"arms": arms})


def test_an_error_of_a_plug_in_s_own_check_is_said_in_its_words():
    @settings_model
    class OfPlugin:
        width: Int = 1

        def __post_init__(self):
            int("x")

    with pytest.raises(ConfigError, match=r"^settings: invalid literal for int"):
        load(OfPlugin, {})


def test_arguments_that_settings_do_not_take_are_refused():
    with pytest.raises(TypeError, match="positional arguments"):
        Inputs(*[None] * 20)
    with pytest.raises(TypeError, match="multiple values for argument 'text_field'"):
        Inputs(["text"], text_field=["body"])
