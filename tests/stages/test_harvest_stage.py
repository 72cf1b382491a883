"""The harvest stage on made-up distributions, and once on what is installed."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from dana.core.errors import ArtifactError, DataError
from dana.core.rng import generator
from dana.stages import harvest
from dana.stages.harvest import harvest_stage
from dana.tasks.card import TaskCard
from dana.tasks.settings import HarvestSettings

SMALL = HarvestSettings(
    pool_documents=100, task_documents=100, min_characters=50, max_characters=400
)
SPLITS = ("train", "dev", "test")


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def module(name: str, functions: int) -> str:
    """Write source with docstrings of 40 random words each."""
    texts = [
        " ".join(f"w{word}" for word in line)
        for line in generator(0, name).integers(0, 10**6, (functions, 40))
    ]
    return "\n".join(f'def f{number}():\n    """{text}"""' for number, text in enumerate(texts))


def distribution(folder: Path, name: str, files: dict[str, str]) -> PathDistribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return PathDistribution(info)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Make scipy with labels of 60, 50 and 39 documents, a private folder; ten others of 30, and twenty licences."""
    target = {"stats": 60, "signal": 50, "io": 39, "_lib": 70}
    files = {f"scipy/{name}/a.py": module(name, count) for name, count in target.items()}
    present = {"scipy": distribution(tmp_path / "w", "scipy", files)}
    for number in range(10):
        name = f"other{number}"
        files = {f"{name}/a.py": module(name, 30)}
        files |= {
            f"{name}/LICENSE-{k}.txt": f"{name} {k} may be used by all who want to. " * 3
            for k in "ab"
        }
        present[name] = distribution(tmp_path / "w", name, files)
    present["dana-lm"] = distribution(
        tmp_path / "w", "dana-lm", {"dana/a.py": module("dana", 30)}
    )  # is left out
    monkeypatch.setattr(harvest, "list_distributions", lambda: dict(present))
    return present


@pytest.fixture
def small(world, tmp_path):
    return harvest_stage(tmp_path / "out", SMALL)


def test_labels_are_the_public_sub_packages_with_forty_documents_each_in_one_place(small):
    card = TaskCard.read(small.path / "card.yaml")
    assert card.labels == ["signal", "stats"]
    # 100 documents, 50 a label; of these 21, 5, 18 and 6 by the shares .42, .1, .34 and .14.
    assert card.splits == {"train": 42, "dev": 10, "test": 36}
    assert small.manifest["counts"]["planted"] == 12
    pool = rows(small.path / "pool.jsonl.gz")
    texts, ids = ({row[name] for row in pool} for name in ("text", "id"))
    for split in SPLITS:
        examples = rows(Path(card.files(None, [split])[0]))
        assert len(examples) == card.splits[split]
        assert Counter(row["label"] for row in examples) == dict.fromkeys(
            card.labels, card.splits[split] // 2
        )
        assert all(row["id"].startswith(f"scipy/scipy/{row['label']}/") for row in examples)
        texts |= {row["text"] for row in examples}
        ids |= {row["id"] for row in examples}
    assert len(pool) == 112
    assert (len(texts), len(ids)) == (200, 200), "no text is in two places"
    sources = Counter(row["source"] for row in pool)
    assert sources.pop("scipy (planted)") == 12
    assert set(sources) == {"licences", *(f"other{number}" for number in range(10))}
    assert max(sources.values()) <= 12


def test_a_source_gives_more_where_there_are_few(small, tmp_path):
    """Of 1000, 4 % are more than the 30 each has; of 100, 4 from each of 10 are not enough, and 12 are."""
    assert (
        harvest_stage(tmp_path / "a", replace(SMALL, pool_documents=1000)).manifest["counts"][
            "pool"
        ]
        == 320
    )
    assert small.manifest["counts"]["pool"] == 100


def test_same_settings_same_bytes_and_another_seed_other_ones(world, tmp_path):
    def content(folder: str, seed: int) -> dict[str, bytes]:
        path = harvest_stage(tmp_path / folder, replace(SMALL, seed=seed)).path
        return {
            file.name: file.read_bytes()
            for file in path.rglob("*.*")
            if file.name != "manifest.json"
        }

    first = content("a", 0)
    assert set(first) == {
        "pool.jsonl.gz",
        "train.jsonl.gz",
        "dev.jsonl.gz",
        "test.jsonl.gz",
        "card.yaml",
    }
    assert first == content("b", 0)
    other = content("c", 1)
    assert all(other[name] != first[name] for name in first if name.endswith(".gz"))


def test_another_version_of_a_distribution_is_another_harvest(world, tmp_path):
    harvest_stage(tmp_path / "out", SMALL)
    assert (
        harvest_stage(tmp_path / "out", SMALL).manifest["depends_on"]["distributions"]["other3"]
        == "1.0"
    )
    world["other3"] = distribution(tmp_path / "new", "other3", {})
    (tmp_path / "new/other3-1.0.dist-info/METADATA").write_text("Name: other3\nVersion: 2.0\n")
    with pytest.raises(ArtifactError, match=r'other3: "1.0" there, "2.0" now'):
        harvest_stage(tmp_path / "out", SMALL)


def test_the_presets_of_the_card_differ(small):
    card = TaskCard.read(small.path / "card.yaml")
    names = (card.name, card.metric, card.direction, card.text, card.label)
    assert names == ("scipy_docs", "macro_f1", "higher", "text", "label")
    presets = [card.preset(name) for name in ("paper", "default", "quick")]
    values = [(p.batch_size, len(p.seed_list), p.learning_rate, p.evaluate) for p in presets]
    assert values == [(8, 8, 3e-5, "last"), (16, 5, 3e-5, "last"), (16, 5, 7e-4, "last")]
    assert "&" not in (small.path / "card.yaml").read_text()  # YAML anchors are not for people


@pytest.mark.parametrize("count", [0, 39])
def test_too_little_of_the_target_is_an_error_with_its_counts(world, tmp_path, count):
    world["scipy"] = distribution(tmp_path / "few", "scipy", {"scipy/io/a.py": module("io", count)})
    if not count:
        del world["scipy"]
    with pytest.raises(
        DataError, match=r"scipy gives \{.*\} documents by sub-package.*at least 40"
    ):
        harvest_stage(tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_is_installed_makes_a_task_and_a_pool(tmp_path):
    pytest.importorskip("scipy")
    settings = HarvestSettings()
    artifact = harvest_stage(tmp_path / "out", settings)
    card = TaskCard.read(artifact.path / "card.yaml")
    assert {"optimize", "signal", "stats"} <= set(card.labels)
    for split in SPLITS:
        assert {row["label"] for row in rows(artifact.path / "task" / f"{split}.jsonl.gz")} == set(
            card.labels
        )
    pool = rows(artifact.path / "pool.jsonl.gz")
    sources = Counter(row["source"] for row in pool)
    assert sources.pop("scipy (planted)") >= 80
    assert max(sources.values()) <= 0.12 * settings.pool_documents
    assert sources["licences"] <= 100
    assert all(
        settings.min_characters <= len(row["text"]) <= settings.max_characters for row in pool
    )
    assert not [
        row["id"]
        for row in pool
        for line in row["text"].splitlines()
        if line.strip().startswith(">>>")
    ]
