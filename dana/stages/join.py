"""Join the fine-tunings of all adaptations of an arm, or of all folds, into one result that reads like any other.

The parts hold all of it: a result that joins fewer of them, or earlier ones, is replaced.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dana.core.artifacts import (
    Artifact,
    Draft,
    list_differences,
    make,
    open_artifact,
    read_manifest,
)
from dana.core.errors import ArtifactError
from dana.core.schemas import NESTED
from dana.tasks.kinds import find_kind


def part_folder(out: Path, index: int) -> Path:
    """Return the folder of one adaptation's part of a result: ``DIR/nested/INDEX/finetune/TASK/ARM`` in a run."""
    if out.parent.parent.name == "finetune":
        return out.parents[2] / NESTED / str(index) / Path(*out.parts[-3:])
    return out.with_name(f"{out.name}-folds") / str(index)


def join_run(run: Path, arms: Collection[str] = ()) -> None:
    """Join, for every task of a run, the results of the adaptations that all arms have, so that arms stay paired.

    Args:
        run: Folder of the run, finished or not.
        arms: Arms that are compared; none takes all.

    Raises:
        ArtifactError: See :func:`join_stage`.
    """
    tasks: dict[str, dict[str, dict[int, Path]]] = defaultdict(lambda: defaultdict(dict))
    for folder in run.glob(f"{NESTED}/*/finetune/*/[!.]*"):
        *_, index, _, task, arm = folder.parts
        if read_manifest(folder).get("kind") == "finetune" and (not arms or arm in arms):
            tasks[task][arm][int(index)] = folder
    for task, parts in sorted(tasks.items()):
        common = set.intersection(*map(set, parts.values()))
        for arm, folders in sorted(parts.items()):
            if common:
                join_stage(
                    {index: folders[index] for index in sorted(common)},
                    run / "finetune" / task / arm,
                )


def join_stage(
    parts: Mapping[int, Path],
    folder: Path,
    floors: Callable[[], dict[str, float]] = dict[str, float],
) -> Artifact:
    """Join results of one adaptation or fold each, as if they came from one fine-tuning.

    Args:
        parts: Folders of :func:`dana.stages.finetune.finetune_stage` by index, of models made
            alike.
        folder: Folder for ``metrics.json`` and ``predictions.parquet``.
        floors: Computes what simple models score on all texts.

    Raises:
        ArtifactError: If parts are missing or unlike; names the first difference.
    """
    artifacts = {index: open_artifact(part, "finetune") for index, part in parts.items()}
    first = next(iter(artifacts.values()))
    for artifact in artifacts.values():
        if unlike := next(
            list_differences(_origin(first.manifest), _origin(artifact.manifest)), None
        ):
            both = f"{artifact.path} does not go with {first.path} ({unlike})"
            raise ArtifactError(f"{both}: remove one and run its command again")
    fingerprints = {str(index): artifact.fingerprint for index, artifact in artifacts.items()}
    old = read_manifest(folder)
    if old.get("parts", {}).items() >= fingerprints.items():
        return open_artifact(folder, "finetune")
    if "parts" in old:
        shutil.rmtree(folder)
    inputs = first.manifest["depends_on"]
    task = inputs["task"]
    seeds = [
        seed
        for artifact in artifacts.values()
        for seed in artifact.manifest["depends_on"]["preset"]["seeds"]
    ]
    kind = find_kind(task["kind"])(tuple(task["labels"]))

    def write(draft: Draft) -> None:
        from dana.finetuning.results import join_results  # loads torch

        join_results(
            {index: artifact.path for index, artifact in artifacts.items()},
            draft.path,
            kind,
            floors(),
        )
        draft.counts |= first.manifest["counts"]
        draft.notes |= {"precision": first.manifest["precision"], "parts": fingerprints}

    depends_on = {key: value for key, value in inputs.items() if key != "fold"}
    depends_on |= {
        "model": {**inputs["model"], "parts": fingerprints},
        "preset": {**inputs["preset"], "seeds": seeds},
    }
    return make(folder, "finetune", depends_on, write)


def _origin(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what must be alike in the parts of a result: all but the model, the fold and which seeds they have."""
    inputs = {
        key: value for key, value in manifest["depends_on"].items() if key not in ("model", "fold")
    }
    preset = {**inputs["preset"], "seeds": len(inputs["preset"]["seeds"])}
    return {
        **inputs,
        "preset": preset,
        "folds": "fold" in manifest["depends_on"],
        "precision": manifest["precision"],
    }
