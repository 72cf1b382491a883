"""The plan of the experiment in docs/results/adaptation.md: tasks, arms, sizes, and the order of what is made."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from dana.finetuning.pilot import NONE

SOURCES = (
    "arxiv",
    "blogs",
    "news_reuters",
    "news_wikinews",
    "newsgroups",
    "pubmed",
    "reviews_amazon",
    "reviews_movie",
)
DOCUMENTS = 3_200  # of an arm's text: what 50 steps of 64 documents read
STEPS = 50
MAX_TOKENS = 128
ADAPTATIONS = 8  # of each arm
MODEL = "minilm"
PRECISION = "bf16"  # of all trainings, on whatever device; the default of the CPU that began

TRAIN_TEXTS = 2_000  # of a task, of which labels are drawn
TEST_TEXTS = 4_000
TARGET_TEXTS = 500  # which selection and pilot see
SIZES = (100, 500)  # labels of the primary question
CURVE = (50, 100, 200, 500, 1_000, 2_000)  # labels of the base, for what a gain is worth
DRAWS = 10  # of labels

BASE = "base"
RANDOM = "random"
CHOSEN = "chosen"
DSIR = "dsir"
SHUFFLED = "shuffled"  # chosen text in which the answer to the objective's question is destroyed
OWN = "own"  # all training texts of the task, without their labels, as documents where ids tell
OWN_AND_CHOSEN = "own-and-chosen"
OWN_PARTS = {"own-50": 50, "own-200": 200}  # so many documents of the task's own texts
PAPER_SEGMENTS = "paper-segments"  # the paper's own path: detectors, ranked by its protocol
PAPER_SIGMOID = "paper-sigmoid"
# Averages of the weights of the base and of the model that chosen text adapted, by the share of the base.
AVERAGED = {"averaged-0.5": 0.5, "averaged-0.75": 0.75}
PILOT = "pilot"  # names the row of a pilot's choice and trials
SECOND_PILOT = "pilot with masked"  # since 2026-11-30 a pilot tries masked tokens, too
# Arguments of dana score, and of dana weigh.
SELECTION = {
    RANDOM: ["--selector", "random"],
    CHOSEN: ["--selector", "auto"],
    DSIR: ["--selector", "dsir"],
    SHUFFLED: ["--selector", "random"],
    OWN: ["--selector", "random"],
    OWN_AND_CHOSEN: ["--selector", "random"],
}
# Those of recipes/papers/dana/table1.yaml.
PAPER_DETECTORS = (
    "robust_covariance",
    "knn:k=5",
    "pyod:PCA",
    "ocsvm:nu=0.1",
    "lof:k=20",
    "iforest:trees=1600,samples=256",
)
BY_DETECTOR = [
    *("--selector", "detector", "--encoder", "static"),
    *("--set", "ranking.protocol=paper", "ranking.prevalence=0.5"),
    f"ranking.detectors={json.dumps(PAPER_DETECTORS)}",
]
SELECTION |= dict.fromkeys(OWN_PARTS, SELECTION[OWN])
SELECTION |= dict.fromkeys((PAPER_SEGMENTS, PAPER_SIGMOID), BY_DETECTOR)
DOCUMENT_BUDGET = ["--budget", f"{DOCUMENTS} documents"]
WEIGHTS = dict.fromkeys(SELECTION, DOCUMENT_BUDGET) | {PAPER_SIGMOID: ["--policy", "sigmoid"]}
EVERY_DOCUMENT = ["--budget", "1000000 documents"]
WEIGHTS |= dict.fromkeys((OWN, OWN_AND_CHOSEN, *OWN_PARTS), EVERY_DOCUMENT)

# Fine-tuning of the whole model at 500 labels: the second question.
TUNED_TASKS = ("rct_sample", "csabstruct", "agnews")
TUNINGS = 2  # seeds of each adapted model

CONTROLS = 4  # adaptations
OWN_TEXTS = 3  # adaptations on the task's own texts, of each arm
OWN_OBJECTIVE = "masked"  # where the pilot chose none, or documents of the task cannot be told
MASKED = 3  # adaptations by masked tokens on chosen text, where the pilot chose none
VARIED_TASKS = ("rct_sample", "agnews")
VARIATIONS = 2  # adaptations of each variant, which shows a size and decides nothing
OTHER_STEPS = (25, 150)
SMALL = "dana-mini"
OBJECTIVES = ("position", "crops")
DRY_TASK = "rct_sample"  # of a dry run
DRY_STEPS = 2
FORGETTING = ("agnews", "sst2", "rct_sample")  # of which the first two others are probed


@dataclass(frozen=True)
class Task:
    """A task of the experiment.

    Attributes:
        name: Name of its card.
        group: Pattern whose first match in an id names the document of a text; None if ids do not tell.
        is_divided_again: Whether all texts are divided anew by a hash, because the published test set is small.
    """

    name: str
    group: str | None = None
    is_divided_again: bool = False


TASKS = (
    Task("rct_sample", r"^rct-\w+-\d+"),
    Task("csabstruct", r"^csab-\w+-\d+"),
    Task("agnews"),
    Task("chemprot"),
    Task("sst2"),
    Task("acl_arc", is_divided_again=True),
)


@dataclass(frozen=True)
class Adaptation:
    """One model to adapt.

    Attributes:
        task: Name of the task whose text it reads; empty for random text, which all tasks share.
        arm: One of the arms but the base.
        objective: Name of the objective.
        index: Number of the adaptation: its seed, and that of the draw of random text.
        model: The base.
        steps: Optimizer steps.
    """

    task: str
    arm: str
    objective: str
    index: int
    model: str = MODEL
    steps: int = STEPS

    @property
    def name(self) -> str:
        """Name of the model's folder."""
        return f"{self.model}-{self.objective}-{self.steps}-{self.arm}-{self.index}"

    @property
    def text_arm(self) -> str:
        """The arm whose text the model has read."""
        return CHOSEN if self.arm in AVERAGED else self.arm

    def arm_on(self, task: str) -> str:
        """Return the arm as a task's rows name it: text of another task is no arm of its own."""
        return self.arm if self.task in ("", task) else f"{self.arm} for {self.task}"


def primary(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the adaptations of the primary question, and the tasks that each is measured on.

    Each index is finished before the next begins, so that a stopped experiment has whole adaptations.

    Args:
        choices: What the pilot of each task chose, without tasks where it chose none.
    """
    for index in range(ADAPTATIONS):
        for objective in sorted(set(choices.values())):
            tasks = [task for task, choice in choices.items() if choice == objective]
            yield Adaptation("", RANDOM, objective, index), tasks
        for task, objective in choices.items():
            yield Adaptation(task, CHOSEN, objective, index), [task]


def rivals(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the adaptations on text that DSIR selects."""
    for index in range(ADAPTATIONS):
        for task, objective in choices.items():
            yield Adaptation(task, DSIR, objective, index), [task]


def controls(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the adaptations on chosen text that has lost the answer to the objective's question."""
    for index in range(CONTROLS):
        for task, objective in choices.items():
            yield Adaptation(task, SHUFFLED, objective, index), [task]


def own_texts(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the adaptations on the task's own texts, alone and together with chosen text.

    Where no other question trains the objective, random text is adapted on by it, too.
    """
    for index in range(OWN_TEXTS):
        masked_tasks: list[str] = []
        for task in TASKS:
            choice = choices.get(task.name)
            if choice is None or (choice == "position" and task.group is None):
                masked_tasks.append(task.name)
                yield Adaptation(task.name, OWN, OWN_OBJECTIVE, index), [task.name]
                continue
            yield Adaptation(task.name, OWN, choice, index), [task.name]
            yield Adaptation(task.name, OWN_AND_CHOSEN, choice, index), [task.name]
        yield Adaptation("", RANDOM, OWN_OBJECTIVE, index), masked_tasks


def own_parts(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield adaptations on few of a task's own documents, where ids tell which sentences belong to one."""
    for index in range(VARIATIONS):
        for task, arm in product(TASKS, OWN_PARTS):
            if task.name in choices and task.group is not None:
                yield Adaptation(task.name, arm, choices[task.name], index), [task.name]


def masked(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the adaptations by masked tokens on chosen text, of the tasks whose pilot did not try it and chose none."""
    for index in range(MASKED):
        for task in TASKS:
            if task.name not in choices:
                yield Adaptation(task.name, CHOSEN, OWN_OBJECTIVE, index), [task.name]


def paper(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the paper's own path on two tasks: text that detectors choose, by segments and by sigmoid weights."""
    for index in range(VARIATIONS):
        for task in VARIED_TASKS:
            if task in choices:
                yield Adaptation(task, PAPER_SEGMENTS, choices[task], index), [task]
                yield Adaptation(task, PAPER_SIGMOID, choices[task], index), [task]


def lengths(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield shorter and longer adaptations of two tasks."""
    for index in range(VARIATIONS):
        for steps, task in product(OTHER_STEPS, VARIED_TASKS):
            if task in choices:
                yield Adaptation("", RANDOM, choices[task], index, steps=steps), [task]
                yield Adaptation(task, CHOSEN, choices[task], index, steps=steps), [task]


def small(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield adaptations of a small base on two tasks."""
    for index in range(VARIATIONS):
        for task in VARIED_TASKS:
            if task in choices:
                yield Adaptation("", RANDOM, choices[task], index, SMALL), [task]
                yield Adaptation(task, CHOSEN, choices[task], index, SMALL), [task]


def objectives(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the objectives that the pilots did not choose, on every task."""
    for index in range(VARIATIONS):
        for task, objective in product([task.name for task in TASKS], OBJECTIVES):
            if choices.get(task) != objective:
                yield Adaptation(task, CHOSEN, objective, index), [task]


def tuned(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the models that are fine-tuned, those of random and of chosen text; a base stands for each index."""
    for index in range(ADAPTATIONS):
        for task in TUNED_TASKS:
            if task not in choices:
                continue
            objective = choices[task]
            yield Adaptation(task, BASE, NONE, index, steps=0), [task]
            yield Adaptation("", RANDOM, objective, index), [task]
            yield Adaptation(task, CHOSEN, objective, index), [task]


def forgetting(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield two models of each task, and two other tasks that they are probed on."""
    for index in range(VARIATIONS):
        for task, objective in choices.items():
            others = [name for name in FORGETTING if name != task]
            yield Adaptation(task, CHOSEN, objective, index), others[:2]


def averages(choices: dict[str, str]) -> Iterator[tuple[Adaptation, list[str]]]:
    """Yield the averages of the base with two adapted models of each task."""
    for index in range(VARIATIONS):
        for (task, objective), arm in product(choices.items(), AVERAGED):
            yield Adaptation(task, arm, objective, index), [task]


def in_small(
    planned: Iterable[tuple[Adaptation, list[str]]],
) -> list[tuple[Adaptation, list[str]]]:
    """Return of what is planned the first adaptation of each arm on one task, of two steps."""
    return [
        (replace(adaptation, steps=DRY_STEPS), [DRY_TASK])
        for adaptation, tasks in planned
        if adaptation.index == 0 and DRY_TASK in tasks
    ]
