"""Every recipe is accepted by the command in its first lines; published numbers parse and add up."""

import csv
import math
import re
import shlex
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from dana.cli.main import build_parser
from dana.core.config import read_yaml
from dana.core.registry import DETECTORS, ENCODERS, SELECTORS
from dana.core.settings import load
from dana.core.shipped import find_recipe
from dana.core.studies import missing_studies
from dana.detectors.pyod import as_detector
from dana.encoders.geometry import parse_geometry
from dana.stages.recipe import read_recipe
from dana.stages.settings import RunSettings
from dana.tasks.card import load_card

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))
PRESENT = [path for path in RECIPES if not read_yaml(path).keys() & missing_studies().keys()]
PAPERS_FOLDER = ROOT / "recipes" / "papers"
PAPERS = sorted(path for path in PAPERS_FOLDER.iterdir() if path.is_dir())
HEAD = [
    "table",
    "row",
    "column",
    "value",
    "std",
    "unit",
    "seeds",
    "source",
    "corrected",
    "known_error",
]
COMMAND = re.compile(
    r"\bdana (?:score|weigh|adapt|finetune|studies (?:compare|translation)|run) [^#`]*?(?=$|  |[:;] |, |\s#|`)"
)


def _name(path):
    inside = path.relative_to(ROOT / "recipes")
    return inside.with_suffix("").as_posix() if len(inside.parts) > 1 else f"recipes/{inside}"


def _commands(path):
    """The commands of the comment at the top that name the recipe."""
    top = [
        line
        for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        if line.startswith("#")
    ]
    commands = [shlex.split(match[0]) for line in top for match in COMMAND.finditer(line)]
    return [words[1:] for words in commands if {_name(path), path.stem} & set(words)]


def _published(paper):
    with (paper / "published.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _numbers(paper, table):
    """Map row and column to the printed value."""
    numbers = defaultdict(dict)
    for row in _published(PAPERS_FOLDER / paper):
        if row["table"] == table:
            numbers[row["row"]][row["column"]] = float(row["value"])
    return numbers


@pytest.mark.parametrize("path", PRESENT, ids=_name)
def test_a_recipe_names_known_components_and_tasks_and_a_command_that_takes_it(
    path, monkeypatch, tmp_path
):
    settings = load(RunSettings, read_recipe(path)[0], origin=_name(path))
    detectors = [
        *settings.ranking.specs(),
        *([settings.detector] if settings.detector != "auto" else []),
    ]
    for spec in detectors:
        as_detector(DETECTORS.create(spec))
    assert settings.selector_spec.partition(":")[0] in SELECTORS.entries()
    ENCODERS.create(settings.selection.encoder)
    parse_geometry(settings.selection.geometry)
    for name in [*settings.cards, *([settings.task] if settings.task else [])]:
        assert settings.finetune.preset in load_card(name).presets
    monkeypatch.chdir(tmp_path)
    commands = _commands(path)
    assert commands, "no command that names the recipe"
    for words in commands:
        args = build_parser().parse_args(words)
        assert find_recipe(getattr(args, "recipe", None) or args.config) == path
        load(RunSettings, read_yaml(path), args.overrides, origin=_name(path))


LIMITS = {"SacreBLEU": 100, "F1": 1, "share": 1, "correlation": 1}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_published_numbers_have_a_source_and_lie_where_their_unit_allows(paper):
    rows = _published(paper)
    assert list(rows[0]) == HEAD
    positions = [(row["table"], row["row"], row["column"]) for row in rows]
    assert len(set(positions)) == len(positions), "a number appears twice"
    for row in rows:
        assert all(row[key] for key in ("table", "row", "column", "value", "unit", "source")), row
        limit = 100 if "%" in row["unit"] else LIMITS.get(row["unit"], math.inf)
        for value in (row["value"], row["corrected"] or row["value"]):
            assert math.isfinite(float(value))
            assert limit == math.inf or 0 <= float(value) <= limit, row
        assert not row["std"] or float(row["std"]) >= 0
        assert not row["seeds"] or int(row["seeds"]) > 1
        assert not row["corrected"] or row["known_error"], "a correction says what was wrong"
    assert "Claimed" in (paper / "README.md").read_text(encoding="utf-8")


def test_the_errors_named_in_dana_follow_from_its_tables():
    table4, table6 = _numbers("dana", "Table 4"), _numbers("dana", "Table 6")
    gains = {task: row["DANA"] - row["Base"] for task, row in table4.items()}
    assert np.mean(list(gains.values())) == pytest.approx(1.01, abs=0.005)
    assert np.mean([gain for task, gain in gains.items() if task != "SST"]) == pytest.approx(
        1.086, abs=0.001
    )
    assert table4["RCT20k"]["LM"] > table4["RCT20k"]["DANA"]
    ahead = [
        column for column, value in table4["AGNews"].items() if value > table4["AGNews"]["DANA"]
    ]
    assert ahead == ["General", "Random", "Task", "Distance"]
    for task, row in table6.items():
        assert row["DANA"] == pytest.approx(gains[task], abs=0.006)
    rows = [row for row in _published(PAPERS_FOLDER / "dana") if row["column"] == "Domain Corpus"]
    ours = [table6[row["row"]]["DANA"] for row in rows]
    for correlation, values in (
        (0.60, [float(row["value"]) for row in rows]),
        (0.01, [float(row["corrected"] or row["value"]) for row in rows]),
    ):
        assert np.corrcoef(ours, values)[0, 1] == pytest.approx(correlation, abs=0.005)


def test_table_3_of_dana_is_what_the_task_cards_expect():
    cards = {"RCT20k": "rct20k", "ACL-ARC": "acl_arc", "SciERC": "sciie", "SST": "sst2"}
    for task, row in _numbers("dana", "Table 3").items():
        card = load_card(cards.get(task, task.lower()))
        assert len(card.labels) == row["classes"]
        for split in ("train", "dev", "test") if task != "SST" else ():
            assert row[split] in np.atleast_1d(card.splits[split]), f"{task} {split}: {row[split]}"


def test_the_errors_named_in_domain_clusters_follow_from_its_tables():
    pairs = _numbers("domain_clusters", "Table 3")["Koran"]["new split"]
    rows = _published(PAPERS_FOLDER / "domain_clusters")
    meant = defaultdict(dict)
    for row in rows:
        if row["table"] == "Table 7":
            meant[row["column"]][row["row"]] = float(row["corrected"] or row["value"])
    for column, values in meant.items():
        average = values.pop("Average")
        # The averages of three rows that were printed to three digits.
        assert np.mean(list(values.values())) == pytest.approx(average, abs=0.0025), column
        method, kind = column.split(", ")
        if kind == "precision":
            recall = meant[f"{method}, recall"]["Koran"]
            assert values["Koran"] == pytest.approx(recall * pairs / 500_000, abs=0.0006)
    for row in _numbers("domain_clusters", "Table 6").values():
        average = row.pop("Average")
        assert np.mean(list(row.values())) == pytest.approx(average, abs=0.006)
