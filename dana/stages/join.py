"""Join the fine-tuned seeds of an arm, of all its adaptations or folds, into one result that reads like any other.

The seeds hold all of it, so a joined result that lacks some of them, or holds earlier ones, is
made again unasked.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
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
from dana.core.files import paths_below
from dana.core.schemas import NESTED
from dana.tasks.kinds import find_kind


def unit_folder(out: Path, index: int) -> Path:
    """Return the folder of the seeds of one adaptation or fold of a result.

    Args:
        out: Folder of the joined result.
        index: Index of the adaptation or fold, from 0.

    Returns:
        ``DIR/nested/INDEX/finetune/TASK/ARM`` where the result is ``DIR/finetune/TASK/ARM``, else
        ``OUT-seeds/INDEX``.
    """
    if out.parent.parent.name == "finetune":
        return out.parents[2] / NESTED / str(index) / Path(*out.parts[-3:])
    return out.with_name(f"{out.name}-seeds") / str(index)


def seed_folder(out: Path, index: int, seed: int) -> Path:
    """Return the folder of one seed of a result: ``seed-N`` in its :func:`unit_folder`."""
    return unit_folder(out, index) / f"seed-{seed}"


def logs_folder(seed: Path) -> Path:
    """Return where trackers log a seed: ``ARM-logs`` beside the seeds in a run, else ``OUT-logs``.

    Args:
        seed: Folder of the seed.
    """
    unit = seed.parent
    seeds = unit.parent
    if seeds.name.endswith("-seeds"):
        return seeds.with_name(f"{seeds.name.removesuffix('-seeds')}-logs")
    return unit.with_name(f"{unit.name}-logs")


def join_run(run: Path, arms: Collection[str] = ()) -> None:
    """Join, for every task of a run, the adaptations that all arms have whole, so that arms stay paired.

    Args:
        run: Folder of the run, finished or not.
        arms: Arms that are compared; none takes all.

    Raises:
        ArtifactError: See :func:`join_stage`.
    """
    tasks: dict[str, dict[str, dict[int, list[Path]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    folders = paths_below(run, f"{NESTED}/*/finetune/*/*/seed-*")
    for folder in sorted(folders, key=lambda path: int(path.name.removeprefix("seed-"))):
        *_, index, _, task, arm, _ = folder.parts
        if read_manifest(folder).get("kind") == "finetune" and (not arms or arm in arms):
            tasks[task][arm][int(index)].append(folder)
    for task, seeds_of in sorted(tasks.items()):
        whole = _whole_indices(seeds_of)
        for arm, indices in sorted(seeds_of.items()):
            parts = {index: indices[index] for index in whole}
            folder = run / "finetune" / task / arm
            if parts and not _has_more(folder, parts):
                join_stage(parts, folder)


def _has_more(folder: Path, parts: Mapping[int, Sequence[Path]]) -> bool:
    """Return whether a result joins these seeds already, and those of further adaptations.

    It was joined when the folder had fewer arms, and says more than a new one would.
    """
    old = read_manifest(folder).get("parts", {})
    new = {
        str(index): [read_manifest(seed)["fingerprint"] for seed in seeds]
        for index, seeds in parts.items()
    }
    return len(old) > len(new) and old.items() >= new.items()


def _whole_indices(seeds_of: Mapping[str, Mapping[int, Sequence[Path]]]) -> list[int]:
    """Return the indices of which every arm has as many seeds as any index has."""
    most = max(len(seeds) for indices in seeds_of.values() for seeds in indices.values())
    whole = [
        {index for index, seeds in indices.items() if len(seeds) == most}
        for indices in seeds_of.values()
    ]
    return sorted(set.intersection(*whole))


def join_stage(
    parts: Mapping[int, Sequence[Path]],
    folder: Path,
    baselines: Callable[[], dict[str, float]] = dict[str, float],
) -> Artifact:
    """Join the results of single seeds, as if they came from one fine-tuning.

    Args:
        parts: Folders of :func:`dana.stages.finetune_seed.seed_stage` by index of the adaptation or
            fold, of models made alike.
        folder: Folder for ``metrics.json`` and ``predictions.parquet``.
        baselines: Computes what simple models score on all texts.

    Raises:
        ArtifactError: If seeds are missing or unlike; names the first difference.
    """
    artifacts = {
        index: [open_artifact(seed, "finetune") for seed in seeds] for index, seeds in parts.items()
    }
    every = [artifact for seeds in artifacts.values() for artifact in seeds]
    first = every[0]
    for artifact in every:
        unlike = list(list_differences(_origin(first.manifest), _origin(artifact.manifest)))
        if unlike:
            both = f"{artifact.path} does not go with {first.path} ({unlike[0]})"
            raise ArtifactError(f"{both}: remove one and run its command again")
    fingerprints = {
        str(index): [artifact.fingerprint for artifact in seeds]
        for index, seeds in artifacts.items()
    }
    old = read_manifest(folder)
    if old.get("parts") == fingerprints:
        return open_artifact(folder, "finetune")
    inputs = first.manifest["depends_on"]
    task = inputs["task"]
    kind = find_kind(task["kind"])(tuple(task["labels"]))
    numbers = [
        seed for artifact in every for seed in artifact.manifest["depends_on"]["preset"]["seeds"]
    ]

    def write(draft: Draft) -> None:
        from dana.finetuning.results import join_results  # loads torch

        join_results(parts, draft.path, kind, baselines())
        draft.counts |= first.manifest["counts"]
        draft.notes |= {"precision": first.manifest["precision"], "parts": fingerprints}

    depends_on = {key: value for key, value in inputs.items() if key != "fold"}
    depends_on["model"] = {**inputs["model"], "parts": fingerprints}
    depends_on["preset"] = {**inputs["preset"], "seeds": numbers}
    return make(folder, "finetune", depends_on, write, remake="parts" in old)


def _origin(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what must be alike in the parts of a result: all but the model, the fold and the seed."""
    inputs = {
        key: value for key, value in manifest["depends_on"].items() if key not in ("model", "fold")
    }
    preset = {key: value for key, value in inputs["preset"].items() if key != "seeds"}
    has_folds = "fold" in manifest["depends_on"]
    return {**inputs, "preset": preset, "folds": has_folds, "precision": manifest["precision"]}
