"""The harvest artifact: installed distributions to the quickstart's labelled task, its card and general text."""

from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, make
from dana.core.files import text_digest
from dana.core.json_lines import write_packed_lines
from dana.corpus.harvest import installed
from dana.tasks.harvested import PLANTED, SPLITS, harvested_card, harvested_general, harvested_task
from dana.tasks.settings import HarvestSettings

NOT_TEXT = "dana"  # changes while it is worked on, its version does not
METHOD = 2  # raised when the same settings take other text


def harvest_stage(folder: Path, settings: HarvestSettings) -> Artifact:
    """Write ``general.jsonl.gz``, ``task/{train,dev,test}.jsonl.gz`` and ``card.yaml``.

    General rows hold id, text and source (the distribution, ``licences``, or ``scipy (planted)``), task rows id,
    text and label. Same installation and settings, same bytes.

    Args:
        folder: The artifact's.
        settings: How much is taken.

    Raises:
        ArtifactError: If the folder holds the outcome of other settings or another installation.
        DataError: If scipy's docstrings cannot be read (an installation without sources).
    """
    present = {name: distribution for name, distribution in installed().items() if name != NOT_TEXT}
    versions = {name: distribution.version for name, distribution in present.items()}

    def write(draft: Draft) -> None:
        seen: set[bytes] = set()
        task, labels = harvested_task(present, settings, seen)
        rows: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
        for split, label, item in task:
            rows[split].append({"id": item.id, "text": item.text, "label": label})
        general = harvested_general(present, settings, seen)
        planted = [{"id": row["id"], "text": row["text"], "source": PLANTED} for row in rows.pop("planted")]
        ordered = sorted(general + planted, key=lambda row: text_digest(row["id"]))
        _write_lines(draft.path / "general.jsonl.gz", ordered)
        for split, lines in rows.items():
            _write_lines(
                draft.path / "task" / f"{split}.jsonl.gz", sorted(lines, key=lambda row: text_digest(row["id"]))
            )
        counts = {split: len(lines) for split, lines in rows.items()}
        (draft.path / "card.yaml").write_text(harvested_card(labels, counts), encoding="utf-8")
        draft.counts.update({"general": len(general), "planted": len(planted), **counts})
        draft.counts["labels"] = {label: sum(row["label"] == label for row in rows["train"]) for label in labels}

    depends_on = {"settings": asdict(settings), "distributions": versions, "method": METHOD}
    return make(folder, "harvest", depends_on, write)


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packed_lines(path, rows)
