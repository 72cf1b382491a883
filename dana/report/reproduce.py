"""A run's remembered settings and manifests to the commands that make the run again, as one block of shell."""

import shlex
from collections.abc import Iterator
from typing import Any

import pandas as pd
import yaml

from dana.report.frames import RunFrames
from dana.report.lineage import own_weights, weights
from dana.report.page import Column, Table
from dana.report.provenance import is_part, steps, versions

AGAIN, RECIPE = "again", "recipe.yaml"  # the folder and the file that the commands write
BY_HAND = {"ranking": "dana rank --config {recipe} --out {out}", "scores": "dana score --config {recipe} --out {out}"}
BY_HAND |= {"weights": "dana weigh {out}", "base": "dana pretrain {out}", "adapted": "dana adapt {out}"}
# Made on the way by the commands of other steps.
ON_THE_WAY = ("corpus", "task", "held_out", "tokens")


def reproduction(run: RunFrames) -> str:
    """Versions and seeds as comments, the settings as a recipe, and the commands; empty where no settings are kept."""
    if not run.settings:
        return ""
    lines = [f"# {', '.join(f'{package} {version}' for package, version in versions(run).items())}"]
    lines += [f"# {said}" for said in _seeds(run)]
    lines += [f"cat > {RECIPE} <<'RECIPE'", *run.settings.splitlines(), "RECIPE"]
    commands = _one_command(run) if run.is_grid else _commands(run)
    return "\n".join([*lines, *commands])


def _seeds(run: RunFrames) -> Iterator[str]:
    """The seeds that were used, by the step that has them; those that follow from others left out."""
    found: dict[str, set[str]] = {}
    for place, manifest in steps(run).items():
        if is_part(place, manifest):
            continue
        depends_on, kind = manifest.get("depends_on", {}), manifest.get("kind")
        if kind == "scores" and isinstance(depends_on.get("selection"), dict):
            found.setdefault("selection", set()).add(str(depends_on["selection"].get("seed")))
        if kind == "model" and "seed" in manifest.get("seeds", {}):
            found.setdefault("training", set()).add(str(manifest["seeds"]["seed"]))
        if kind == "finetune" and isinstance(depends_on.get("preset"), dict):
            found.setdefault("fine-tuning", set()).add(", ".join(map(str, depends_on["preset"].get("seeds", []))))
    if found:
        yield "seeds: " + "; ".join(f"{step} {' or '.join(sorted(seeds))}" for step, seeds in found.items())


def _one_command(run: RunFrames) -> Iterator[str]:
    if any(manifest.get("kind") == "harvest" for manifest in run.stages.values()):
        yield "# The texts were harvested from the packages installed there, into the folder that task: names. Keep it."
    yield f"dana run {RECIPE} out={AGAIN}"


def _commands(run: RunFrames) -> Iterator[str]:
    for place, manifest in steps(run).items():
        if place in BY_HAND:
            yield BY_HAND[place].format(recipe=RECIPE, out=AGAIN) + _trained_here(run, manifest)
        elif manifest.get("kind") == "finetune" and place.startswith("finetune"):
            yield _finetune(run, place, manifest)
        elif place.partition("/")[0] not in ON_THE_WAY:
            yield f"# {place} was made by a command that the folder does not remember"
    yield f"dana report {AGAIN}"


def _trained_here(run: RunFrames, manifest: dict[str, Any]) -> str:
    """The flag for the model that a step starts from, where this run trained it; its settings know any other."""
    place = _place_of(run, manifest)
    return f" --model {AGAIN}/{place}" if place else ""


def _finetune(run: RunFrames, place: str, manifest: dict[str, Any]) -> str:
    preset = manifest.get("depends_on", {}).get("preset", {})
    model = _model(run, manifest)
    words = ["dana", "finetune", "--config", RECIPE, "--model", model or "MODEL", "--out", f"{AGAIN}/{place}"]
    words += ["--seeds", str(len(preset["seeds"]))] if preset.get("seeds") else []
    return shlex.join(words) + ("" if model else "  # MODEL: what was fine-tuned, by its digests in tables/inputs.csv")


def _model(run: RunFrames, manifest: dict[str, Any]) -> str:
    """The model a fine-tuning started from: one of this run, one of the Hub, or what the run adapted; or empty."""
    identity = manifest.get("depends_on", {}).get("model")
    if place := _place_of(run, manifest):
        return f"{AGAIN}/{place}"
    if isinstance(identity, dict) and "name" in identity:
        return str(identity["name"])
    adapted = run.stages.get("adapted", {}).get("depends_on", {}).get("model")
    is_base = bool(weights(identity)) and weights(adapted) == weights(identity)
    return str(yaml.safe_load(run.settings).get("model") or "") if is_base else ""


def _place_of(run: RunFrames, manifest: dict[str, Any]) -> str:
    """Which of the run's own models a step started from, by the digests of the weights; empty if none of them."""
    wanted = weights(manifest.get("depends_on", {}).get("model"))
    return next((place for place, other in run.stages.items() if wanted and own_weights(other) == wanted), "")


def input_table(run: RunFrames) -> Table | None:
    """A row a step and file that it read: the file's digest; None where no manifest names one."""
    rows = []
    for place, manifest in steps(run).items():
        depends_on = manifest.get("depends_on", {})
        card = depends_on.get("task")
        for files in (
            depends_on.get("files"),
            card.get("data") if isinstance(card, dict) else None,
            depends_on.get("model"),
        ):
            if isinstance(files, dict):
                rows += [{"step": place, "file": name, "digest": str(digest)} for name, digest in sorted(files.items())]
    if not rows:
        return None
    columns = (
        Column("step", lambda row: row.step, numeric=False),
        Column("file", lambda row: row.file, numeric=False),
        Column("digest", lambda row: row.digest, numeric=False),
    )
    caption = "Digests (BLAKE2b) of what was read. The same digests, settings and versions give the same run."
    return Table("inputs", caption, pd.DataFrame(rows), columns, most=60, folded=True)
