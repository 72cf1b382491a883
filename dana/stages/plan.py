"""Say what a run of steps will do: the state of each step, and how much its trainings read."""

from collections import Counter
from collections.abc import Collection, Iterable

from dana.core.text_table import tabulate
from dana.stages.steps.run import Run
from dana.stages.steps.step import Step
from dana.train.settings import TrainSettings

STATES = ("done", "changed", "missing")


def plan_text(run: Run, names_all: bool = False) -> str:
    """Count the steps of a run by what they do and by their state, and sum up those that are ahead.

    Args:
        run: The steps.
        names_all: Whether each step has a line of its own, too. Changed ones always have, because they
            are made again only with ``--remake``.
    """
    states = run.states()
    counts: dict[str, Counter[str]] = {}
    for step in run.steps:
        counts.setdefault(step.kind, Counter())[states[step.name]] += 1
    rows: list[dict[str, str | int]] = []
    for kind, by_state in counts.items():
        columns = {state: by_state[state] for state in STATES}
        rows.append({"steps": kind, "all": by_state.total(), **columns})
    named = [step for step in run.steps if names_all or states[step.name] == "changed"]
    lines = [f"{states[step.name]:<8} {step.name}" for step in named]
    return "\n".join([tabulate(rows), *lines, summary_text(run), "dry run   nothing was written"])


def left_out_text(run: Run, made: Collection[str]) -> str:
    """Count the steps of a run that its time did not suffice for, by what they do; empty if it did.

    Args:
        run: The steps.
        made: Names of those that are done.
    """
    left = [step for step in run.steps if step.name not in made and not step.concludes]
    if not left:
        return ""
    kinds = Counter(step.kind for step in left)
    parts = [f"{count} × {kind}" for kind, count in kinds.items()]
    return f"left out, as the time is over: {', '.join(parts)}; the same command goes on with them"


def summary_text(run: Run) -> str:
    """Count in one line the steps of a run that are not done, and the tokens that they train on."""
    states = run.states()
    ahead = [step for step in run.steps if states[step.name] != "done"]
    parts = [f"{len(ahead)} of {len(run.steps)} steps, into {run.folder}", *_trainings(ahead)]
    return f"plan      {'; '.join(parts)}"


def _trainings(steps: Iterable[Step]) -> list[str]:
    """Describe the trainings of language models by their length, and count the fine-tunings."""
    lengths: Counter[str] = Counter()
    finetunings = 0
    pilots = 0
    for step in steps:
        function = step.stage.rpartition(":")[2]
        if function in ("adapt_stage", "adapt_chosen"):
            lengths[training_length(step.settings["settings"])] += 1
        elif function == "base_model" and step.settings["model"] is None:
            lengths[training_length(step.settings["pretrain"])] += 1
        elif function == "pilot_stage":
            pilots += 1
        elif function == "seed_stage":
            finetunings += 1
    parts = [f"{count} × training on {length}" for length, count in lengths.items()]
    if pilots:
        parts.insert(0, f"{pilots} × a pilot of the objectives")
    if finetunings:
        parts.append(f"{finetunings} × fine-tuning")
    return parts


def training_length(settings: TrainSettings) -> str:
    """Say how long a training is, in the unit in which it was set: tokens, steps or epochs."""
    if settings.steps is not None:
        return f"{settings.steps:,} steps"
    if settings.tokens is not None:
        return f"{settings.tokens:,} tokens"
    return f"{settings.epochs or 1:g} × the text"
