"""A run's manifests to tables of steps, settings, inputs and costs, and to the commands that make the run again."""

import shlex
from collections.abc import Iterator
from typing import Any

import pandas as pd
import yaml

from dana.core.schemas import NESTED
from dana.report.cells import own_weights, weights
from dana.report.files import flatten
from dana.report.page import Column, Table, decimals, number, percent, shares, text_columns
from dana.report.run import RunFrames

MOST_SETTINGS, MOST_INPUTS = 80, 60
# The order in which steps are taken; whatever else there is comes last.
KINDS = ("harvest", "task", "corpus", "ranking", "scores", "held_out", "weights", "tokens", "model", "finetune")
# Of a step's kind: the count of what went through it, and what that is.
AMOUNTS = {
    "corpus": ("in", "documents"),
    "ranking": ("task_units", "task units"),
    "scores": ("units", "units"),
    "weights": ("units.in", "units"),
    "tokens": ("tokens", "tokens"),
    "model": ("tokens_seen", "tokens"),
}
WORK = {"scores": "scoring", "model": "training", "finetune": "fine-tuning"}  # named in the sentence
AGAIN, RECIPE = "again", "recipe.yaml"  # the folder and the file that the commands write
BY_HAND = {"ranking": "dana rank --config {recipe} --out {out}", "scores": "dana score --config {recipe} --out {out}"}
BY_HAND |= {"weights": "dana weigh {out}", "base": "dana pretrain {out}", "adapted": "dana adapt {out}"}
# Made on the way by the commands of other steps.
ON_THE_WAY = ("corpus", "task", "held_out", "tokens")


def steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """Every committed step's manifest by its place in the folder, in the order of work."""

    def place(step: tuple[str, dict[str, Any]]) -> tuple[int, bool]:
        """By its kind; of models, those that start from none come first."""
        kind = step[1].get("kind")
        return KINDS.index(kind) if kind in KINDS else len(KINDS), "model" in step[1].get("depends_on", {})

    return dict(sorted(run.stages.items(), key=place))


def joined_steps(run: RunFrames) -> dict[str, dict[str, Any]]:
    """The steps, but for the fine-tuning of each nested seed: the result that joins the seeds holds all of it."""
    return {
        place: manifest
        for place, manifest in steps(run).items()
        if not (place.startswith(f"{NESTED}/") and manifest.get("kind") == "finetune")
    }


def step_table(run: RunFrames) -> Table:
    """A row a step: counts, and the fingerprint of all it was made from."""
    rows = []
    for place, manifest in steps(run).items():
        counts = flatten({key: count for key, count in manifest.get("counts", {}).items() if key != "by_source"})
        row = {"step": place, "kind": manifest.get("kind", "")}
        row["counts"] = "; ".join(f"{key} {_plain(value)}" for key, value in counts)
        rows.append({**row, "fingerprint": str(manifest.get("fingerprint", ""))})
    columns = (*text_columns("step", "counts"), Column("fingerprint", lambda row: row.fingerprint[:8], numeric=False))
    caption = "The fingerprint is of the settings and inputs: the same fingerprint, the same outcome."
    return Table("steps", caption, pd.DataFrame(rows, columns=["step", "kind", "counts", "fingerprint"]), columns)


def setting_table(run: RunFrames) -> Table:
    """A row a step and setting."""
    rows = [
        (place, key, _plain(value))
        for place, manifest in steps(run).items()
        for key, value in flatten(manifest.get("depends_on", {}))
    ]
    frame, caption = pd.DataFrame(rows, columns=["step", "setting", "value"]), "What each step was made from."
    return Table("settings", caption, frame, text_columns(*frame.columns), most=MOST_SETTINGS, folded=True)


def input_table(run: RunFrames) -> Table:
    """A row a step and file that it read: the file's digest."""
    rows = []
    for place, manifest in steps(run).items():
        depends_on = manifest.get("depends_on", {})
        card = depends_on.get("task")
        data = card.get("data") if isinstance(card, dict) else None
        for files in (depends_on.get("files"), data, depends_on.get("model")):
            if isinstance(files, dict):
                rows += [(place, name, str(digest)) for name, digest in sorted(files.items())]
    frame = pd.DataFrame(rows, columns=["step", "file", "digest"])
    caption = "Digests (BLAKE2b) of what was read. The same digests, settings and versions give the same run."
    return Table("inputs", caption, frame, text_columns(*frame.columns), most=MOST_INPUTS, folded=True)


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def versions(run: RunFrames) -> dict[str, str]:
    """Package to version; several versions, where steps differ, are all named."""
    found: dict[str, set[str]] = {}
    for manifest in run.stages.values():
        for package, version in manifest.get("versions", {}).items():
            found.setdefault(package, set()).add(version)
    return {package: " and ".join(sorted(used)) for package, used in sorted(found.items())}


def cost_table(run: RunFrames) -> Table | None:
    """A row a step: seconds, their share, what went through it; None without a manifest."""
    rows = []
    for place, manifest in joined_steps(run).items():
        seconds = max(float(manifest.get("seconds", 0)), run.recorded.get(place, 0.0))
        amount, of = _amount(manifest)
        row = {"step": place, "kind": str(manifest.get("kind", "")), "seconds": seconds, "amount": amount, "of": of}
        rows.append({**row, "per_second": amount / seconds if seconds else float("nan")})
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    frame.insert(3, "share", frame["seconds"] / max(frame["seconds"].sum(), 1e-300))
    text = Column("text", lambda row: f"{number(row.amount, 0)} {row.of}" if row.of else "–")
    rate = Column("a second", lambda row: number(row.per_second, 0 if row.per_second >= 10 else 1))
    caption = (
        "Seconds by the clock, over every time that a step was begun again; of scoring summed over processes, of "
        "fine-tuning over seeds. What was reused cost nothing again. Tokens of training are those the model saw; "
        "texts of fine-tuning count once an epoch and seed."
    )
    return Table("cost", caption, frame, (*text_columns("step"), *decimals(1, "seconds"), *shares("share"), text, rate))


def _amount(manifest: dict[str, Any]) -> tuple[float, str]:
    """How much text went through a step, and what is counted; NaN and nothing where that is not known."""
    counts, kind = dict(flatten(manifest.get("counts", {}))), manifest.get("kind")
    preset = manifest.get("depends_on", {}).get("preset")
    if kind == "finetune" and isinstance(preset, dict) and {"epochs", "seeds"} <= preset.keys() and "train" in counts:
        return float(counts["train"] * preset["epochs"] * len(preset["seeds"])), "texts"
    key, of = AMOUNTS.get(str(kind), ("", ""))
    return (float(counts[key]), of) if key in counts else (float("nan"), "")


def cost_finding(table: Table) -> str:
    """The time of all steps, where it went, and how many tokens were trained on at which rate."""
    frame = table.frame
    total = frame["seconds"].sum()
    by_kind = frame.groupby("kind")["seconds"].sum()
    parts = [f"{words} {percent(by_kind[kind] / total)}" for kind, words in WORK.items() if by_kind.get(kind, 0)]
    said = f"{_duration(total)} in all{': ' if parts else ''}{', '.join(parts)}."
    trained = frame[(frame["kind"] == "model") & frame["amount"].gt(0)]
    if len(trained):
        tokens, seconds = trained["amount"].sum(), trained["seconds"].sum()
        said += f" {number(tokens, 0)} tokens were trained on, {number(tokens / seconds, 0)} a second."
    return said


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{number(seconds, 1)} seconds"
    return f"{number(seconds / 60, 1)} minutes" if seconds < 7200 else f"{number(seconds / 3600, 1)} hours"


def reproduction(run: RunFrames) -> str:
    """Versions and seeds as comments, the settings as a recipe, and the commands; empty where no settings are kept."""
    if not run.settings:
        return ""
    lines = [f"# {', '.join(f'{package} {version}' for package, version in versions(run).items())}"]
    lines += [f"# {said}" for said in _seeds(run)]
    lines += [f"cat > {RECIPE} <<'RECIPE'", *run.settings.splitlines(), "RECIPE"]
    if not run.is_grid:
        return "\n".join([*lines, *_commands(run)])
    if any(manifest.get("kind") == "harvest" for manifest in run.stages.values()):
        lines.append("# The texts were harvested from the packages installed there, into the folder that task: names.")
    return "\n".join([*lines, f"dana run {RECIPE} out={AGAIN}"])


def _seeds(run: RunFrames) -> Iterator[str]:
    """The seeds that were used, by the step that has them; those that follow from others left out."""
    found: dict[str, set[str]] = {}
    for manifest in joined_steps(run).values():
        depends_on, kind = manifest.get("depends_on", {}), manifest.get("kind")
        if kind == "scores" and isinstance(depends_on.get("selection"), dict):
            found.setdefault("selection", set()).add(str(depends_on["selection"].get("seed")))
        if kind == "model" and "seed" in manifest.get("seeds", {}):
            found.setdefault("training", set()).add(str(manifest["seeds"]["seed"]))
        if kind == "finetune" and isinstance(depends_on.get("preset"), dict):
            found.setdefault("fine-tuning", set()).add(", ".join(map(str, depends_on["preset"].get("seeds", []))))
    if found:
        yield "seeds: " + "; ".join(f"{step} {' or '.join(sorted(seeds))}" for step, seeds in found.items())


def _commands(run: RunFrames) -> Iterator[str]:
    for place, manifest in steps(run).items():
        if place in BY_HAND:
            start = _place_of(run, manifest)  # where this run trained it; its settings know any other
            yield BY_HAND[place].format(recipe=RECIPE, out=AGAIN) + (f" --model {AGAIN}/{start}" if start else "")
        elif manifest.get("kind") == "finetune" and place.startswith("finetune"):
            yield _finetune(run, place, manifest)
        elif place.partition("/")[0] not in ON_THE_WAY:
            yield f"# {place} was made by a command that the folder does not remember"
    yield f"dana report {AGAIN}"


def _finetune(run: RunFrames, place: str, manifest: dict[str, Any]) -> str:
    preset = manifest.get("depends_on", {}).get("preset", {})
    model = _model(run, manifest)
    command = ["dana", "finetune", "--config", RECIPE, "--model", model or "MODEL", "--out", f"{AGAIN}/{place}"]
    command += ["--seeds", str(len(preset["seeds"]))] if preset.get("seeds") else []
    unknown = "  # MODEL: what was fine-tuned, by its digests in tables/inputs.csv"
    return shlex.join(command) + ("" if model else unknown)


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
