"""What was renamed is refused, and the message says its new name: as a flag, a key, a keyword and an arm."""

import pytest

import dana
from dana.cli.main import main
from dana.core.errors import ConfigError
from dana.core.renamed import RENAMED, new_name
from dana.core.settings import load
from dana.stages.settings import RunSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"general": ["pool/"]}, "'general'; it is 'pool' now"),
        ({"floors": "none"}, "'floors'; it is 'baselines' now"),
        (
            {"selection": {"general_share": 0.1}},
            "'selection.general_share'; it is 'pool_share' now",
        ),
        (
            {"selection": {"max_task_units": 9}},
            "'selection.max_task_units'; it is 'max_target_units' now",
        ),
        (
            {"harvest": {"general_documents": 99}},
            "'harvest.general_documents'; it is 'pool_documents' now",
        ),
    ],
)
def test_an_old_key_of_a_recipe_is_refused_with_the_new_one(values, message):
    with pytest.raises(ConfigError, match=message):
        load(RunSettings, values)


@pytest.mark.parametrize(
    "arms", [["general"], {"mine": "general"}, {"mine": {"mix": {"general": 1}}}]
)
def test_an_old_name_of_an_arm_or_of_a_text_is_refused_with_the_new_one(arms):
    from dana.stages.settings import load_settings

    with pytest.raises(ConfigError, match="it is 'pool' now"):
        load_settings({"arms": arms}).parsed_arms  # noqa: B018


def test_an_old_flag_is_refused_with_the_new_one(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["score", "--task", "t.txt", "--general", "pool", "--out", "run"])
    assert stopped.value.code == 2
    assert "--general pool; it is '--pool' now" in capsys.readouterr().err


def test_an_old_keyword_is_refused_with_the_new_one(tmp_path):
    with pytest.raises(ConfigError, match=r"general.*it is 'pool' now"):
        dana.score("t.txt", general=["text"], out=tmp_path)


def test_no_name_is_both_old_and_new():
    assert not RENAMED.keys() & set(RENAMED.values())
    assert new_name("general", []) is None, "a place that has no pool says nothing of it"
