"""Settings: unknown keys are suggested, overrides reach in, bad values name the key and what is allowed."""

from dataclasses import dataclass, field

import pytest

from dana.core.config import load, read_yaml, require
from dana.core.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    """Nested settings."""

    steps: int = 10
    rate: float = 0.1

    def __post_init__(self) -> None:
        require(self.steps >= 1, "steps", self.steps, "at least 1")


@dataclass(frozen=True)
class Outer:
    """Settings."""

    name: str
    inner: Inner = field(default_factory=Inner)
    files: list[str] = field(default_factory=list)
    limit: int | None = None
    quick: bool = False
    extra: Inner | None = None


def test_defaults_yaml_and_overrides_in_that_order():
    made = load(Outer, {"name": "a", "inner": {"steps": 3}}, ["inner.steps=4", "limit=7", "files=[x, y]", "quick=true"])
    assert made == Outer("a", Inner(4, 0.1), ["x", "y"], 7, True)


def test_settings_of_one_class_share_no_list():
    from dana.stages.settings import RunSettings

    changed, other = load(RunSettings, {}), load(RunSettings, {})
    changed.cards.append("one")
    changed.inputs.text_field.append("two")
    assert load(RunSettings, {}) == other == RunSettings()


def test_an_override_makes_the_section_it_reaches_into():
    assert load(Outer, {"name": "a"}, ["inner.rate=0.5"]).inner == Inner(10, 0.5)


def test_overrides_leave_the_given_values_alone():
    values = {"name": "a", "inner": {"steps": 3}}
    load(Outer, values, ["inner.steps=4", "name=b"])
    assert values == {"name": "a", "inner": {"steps": 3}}


def test_an_override_may_hold_an_equals_sign():
    assert load(Outer, {}, ["name=knn:k=10"]).name == "knn:k=10"


def test_an_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"x\.yaml: unknown key 'nmae'; did you mean 'name'\? Known: extra, files"):
        load(Outer, {"nmae": "a"}, origin="x.yaml")


def test_an_unknown_nested_key_is_named_in_full():
    with pytest.raises(ConfigError, match=r"unknown key 'inner\.stepps'; did you mean 'steps'\? Known: rate, steps"):
        load(Outer, {"name": "a"}, ["inner.stepps=3"])


def test_a_section_that_is_no_mapping_is_refused():
    with pytest.raises(ConfigError, match="inner=3: must be a mapping of settings"):
        load(Outer, {"name": "a", "inner": 3})


def test_an_override_into_what_is_no_section_is_refused():
    with pytest.raises(ConfigError, match=r"'name\.x=1': 'name' holds 'a', not a mapping"):
        load(Outer, {"name": "a"}, ["name.x=1"])


def test_an_override_without_equals_is_refused():
    with pytest.raises(ConfigError, match="'name': an override is written key=value"):
        load(Outer, {}, ["name"])


def test_an_override_that_is_not_yaml_is_refused():
    with pytest.raises(ConfigError, match=r"'files=\[x': the value is not YAML"):
        load(Outer, {"name": "a"}, ["files=[x"])


def test_a_value_of_the_wrong_type_names_key_value_and_types():
    with pytest.raises(ConfigError, match="settings: limit='many': must be a whole number or null"):
        load(Outer, {"name": "a", "limit": "many"})
    with pytest.raises(ConfigError, match=r"inner\.steps='soon': must be a whole number"):
        load(Outer, {"name": "a", "inner": {"steps": "soon"}})


def test_a_value_out_of_range_names_origin_key_value_and_range():
    with pytest.raises(ConfigError, match=r"r\.yaml: .*steps=0: must be at least 1"):
        load(Outer, {"name": "a", "inner": {"steps": 0}}, origin="r.yaml")


def test_a_missing_value_is_named():
    with pytest.raises(ConfigError, match="name"):
        load(Outer, {})


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"stepz": 1}, r"settings: unknown key 'extra.stepz'; did you mean 'steps'\?"),
        ({"steps": "x"}, r"settings: extra\.steps='x': must be a whole number"),
        ({"steps": 0}, "settings: steps=0: must be at least 1"),
    ],
)
def test_an_optional_section_is_checked_as_any_other(extra, message):
    with pytest.raises(ConfigError, match=message):
        load(Outer, {"name": "a", "extra": extra})
    assert load(Outer, {"name": "a", "extra": {"steps": 2}}).extra == Inner(2)


def test_errors_are_one_line():
    for values in ({}, {"name": []}, {"name": "a", "files": 3}, {"name": "a", "inner": {"rate": "x"}}):
        with pytest.raises(ConfigError) as caught:
            load(Outer, values)
        assert "\n" not in str(caught.value)


def test_yaml_files_are_read_and_bad_ones_located(tmp_path):
    good = tmp_path / "good.yaml"
    good.write_text("a: 1\nb: [x]\n", encoding="utf-8")
    assert read_yaml(good) == {"a": 1, "b": ["x"]}
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: 1\nb: [x\nc: 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.yaml:3: not YAML"):
        read_yaml(bad)
    bad.write_text("- a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.yaml: must hold a mapping of keys to values, found list"):
        read_yaml(bad)
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        read_yaml(tmp_path / "none.yaml")
    bad.write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml: not UTF-8"):
        read_yaml(bad)


def test_require_shows_the_value():
    require(True, "k", 1, "anything")
    with pytest.raises(ConfigError, match=r"^k='x': must be y$"):
        require(False, "k", "x", "y")


@pytest.mark.parametrize("text", [".nan", ".NaN", "nan"])
def test_no_setting_is_not_a_number(text):
    with pytest.raises(ConfigError, match=r"inner\.rate='?nan'?: must be "):
        load(Outer, {"name": "a"}, [f"inner.rate={text}"])
    with pytest.raises(ConfigError, match=r"extra.rate='?nan'?: must be "):
        load(Outer, {"name": "a"}, [f"extra={{rate: {text}}}"])


@pytest.mark.parametrize(
    ("key", "allowed"), [("detector", "text"), ("arms", "list or dict"), ("adapt.seed", "a whole number")]
)
def test_null_is_refused_where_a_setting_has_no_such_value(key, allowed):
    from dana.stages.settings import RunSettings

    with pytest.raises(ConfigError, match=f"{key}=null: must be {allowed}$"):
        load(RunSettings, {}, [f"{key}=null"])
    assert load(RunSettings, {}, ["model=null", "adapt.steps=null"]) == RunSettings()
