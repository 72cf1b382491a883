"""Packages that dana does not know: found by entry points, checked against the contract, run by the commands.

The pages of docs/extend show these packages, word for word.
"""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dana.cli.main import main
from dana.core.schemas import read_table
from dana.selectors.checks import check_detector, check_encoder, check_selector

PLUGINS = Path(__file__).parent
PAGES = PLUGINS.parents[1] / "docs" / "extend"
# A page, the files of the package it shows, in order, the check of its components, and their specs.
SHOWN = {
    "detector": (
        [f"toy_detector/{name}.py" for name in ("convention", "native", "contrastive")],
        check_detector,
        ["toy", "toy_convention", "toy_contrastive"],
    ),
    "encoder": (["toy_encoder.py"], check_encoder, ["trigrams"]),
    "selector": (["toy_selector.py"], check_selector, ["vocabulary", "vocabulary:least=2"]),
}


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Registers every package as pip would: its modules on the path, and a dist-info folder with its entry points."""
    for page in SHOWN:
        folder = PLUGINS / f"toy_{page}"
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        info = tmp_path / "site" / f"{folder.name}-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n"
        )
        lines = []
        for group, entries in project["entry-points"].items():
            # knn is a name of dana's, for other tests
            lines += [
                f"[{group}]",
                *(f"{name} = {value}" for name, value in entries.items() if name != "knn"),
            ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(folder)
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_a_strangers_components_rank_and_score_by_the_command_line(
    strangers, tmp_path, monkeypatch
):
    random = np.random.default_rng(0)
    cells, courts = (
        ["cell", "gene", "protein", "kinase", "assay"],
        ["court", "judge", "appeal", "motion", "tort"],
    )

    def document(words, sentences):
        return " ".join(
            " ".join(random.choice(words, 7)).capitalize() + "." for _ in range(sentences)
        )

    monkeypatch.chdir(tmp_path)
    Path("task.txt").write_text("\n\n".join(document(cells, 6) for _ in range(12)))
    Path("pool.txt").write_text(
        "\n\n".join(document(courts if row % 5 else cells, 8) for row in range(40))
    )
    texts = ["--task", "task.txt", "--pool", "pool.txt", "--encoder", "trigrams:dims=64"]
    assert (
        main(
            [
                "score",
                "--rank-only",
                *texts,
                "--set",
                "ranking.detectors=[toy,toy_convention,toy_contrastive]",
                "--out",
                "run",
            ]
        )
        == 0
    )
    table = Path("run/ranking/ranking.csv").read_text()
    assert all(name in table for name in ("toy,", "toy_convention,", "toy_contrastive,"))
    assert main(["score", *texts, "--selector", "detector:toy_convention", "--out", "run"]) == 0
    assert (
        main(["score", *texts, "--selector", "detector:toy_contrastive", "--out", "contrast"]) == 0
    )
    assert main(["score", *texts[:4], "--selector", "vocabulary:least=2", "--out", "other"]) == 0
    for folder in ("run/scores", "contrast/scores", "other/scores"):
        scores = read_table(Path(folder)).to_pandas()
        is_cells = scores["doc_id"].isin(scores["doc_id"].drop_duplicates().iloc[::5])
        assert scores[is_cells]["score"].max() < scores[~is_cells]["score"].min()


@pytest.mark.parametrize("page", SHOWN)
def test_the_page_shows_a_package_that_runs_and_passes_every_check(page, strangers):
    files, check, specs = SHOWN[page]
    package = PLUGINS / f"toy_{page}"
    blocks = re.findall(r"```(\w+)\n(.*?)```", (PAGES / f"{page}.md").read_text(), flags=re.DOTALL)
    code, entries, commands = (
        [text for of, text in blocks if of == kind] for kind in ("python", "toml", "bash")
    )
    for name, text in zip(files, code, strict=False):
        assert text == f"# {name}\n{(package / name).read_text()}"
    tomllib.loads("".join(entries))  # all of them, pasted into one file
    values: dict = {}
    for text in code:
        exec(text, values)
    lines = "".join(entries).splitlines()
    assert lines
    assert set(lines) <= set((package / "pyproject.toml").read_text().splitlines())
    assert all(f"dana plugins check {page} " in text for text in commands)
    for spec in specs:
        results = check(spec)
        assert len(results) >= 5
        assert [str(result) for result in results if not result.passed or result.detail] == []
