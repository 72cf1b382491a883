"""``dana run``: run a recipe as steps, from text to fine-tuned models, and report on results."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, DanaError, NothingToReport
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.schemas import part_files
from dana.core.statistics import FIRST_LOOK
from dana.core.storage import is_url
from dana.core.studies import load_parts
from dana.corpus.sources import STDIN
from dana.models.folder import load_config, load_own_tokenizer
from dana.models.pooling import read_pooling
from dana.report.run import is_control
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.stages.arms import Arm
from dana.stages.final_steps import (
    BASE,
    arm_of_encoder,
    check_final,
    methods_tried,
    names_of_models,
    with_final,
)
from dana.stages.finetune_steps import (
    ALL_TEXTS,
    CANDIDATE,
    TaskRun,
    baseline_step,
    cards_by_name,
    check_seeds,
    count_folds,
    folder_of_adaptation,
    loss_steps,
    refuse_mixed_precision,
    suffix,
    with_seed,
)
from dana.stages.join import join_run
from dana.stages.pack import pack_stage
from dana.stages.pilot import before_pilot, choice_text
from dana.stages.pilot_steps import PILOT, pilot_name, pilot_steps
from dana.stages.plan import left_out_text, summary_text
from dana.stages.power import describe_power
from dana.stages.probe_steps import base_probe_steps, is_probed, probe_steps, retrieval_steps
from dana.stages.progress import Progress, milestones
from dana.stages.rank import RANKING, comparison_text, rank_stage
from dana.stages.recipe import write_recipe
from dana.stages.report import report_stage
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import OutputOf, Step
from dana.stages.texts import (
    check_names,
    check_sources,
    held_out_folders,
    held_out_stage,
    open_texts,
)
from dana.stages.training import (
    TrainingData,
    head_stage,
    pretrain_stage,
    require_saved_head,
)
from dana.stages.weigh import first_look
from dana.tasks.card import find_card, load_card
from dana.tasks.examples import is_text
from dana.train.settings import AdaptSettings, PretrainSettings
from dana.weighting.settings import WeighSettings, parse_balance

log = get_logger(__name__)

# Settings used by the steps that read text and that warm up a head; other settings can change
# without a rerun.
TEXT_SETTINGS = ("out", "task", "pool", "data", "on_bad_record", "inputs", "hygiene")
HEAD_SETTINGS = ("objective", "seed", "max_tokens", "denominator", "execution", "head_warmup")

# What a quick run does of a recipe: these arms, and so many of its adaptations.
QUICK_ARMS = {"random", "dana"}
QUICK_ADAPTATIONS = 3


def run_recipe(
    settings: RunSettings,
    quick: bool = False,
    remake: bool = False,
    minutes: float | None = None,
) -> Path:
    """Run every step of a recipe and report on them; existing artifacts are reused.

    Args:
        settings: Settings of the run.
        quick: Whether to end earlier: see :func:`plan_run`. A later run without it goes on from
            there.
        remake: Whether artifacts of other settings are replaced instead of refused.
        minutes: Time that the run may take, in minutes; None sets no limit (see
            :func:`dana.stages.steps.runner.execute`). Steps for which the time is too short are
            logged and left out, and the report covers the finished ones.

    Returns:
        Path of ``report.html``, which is not there if `minutes` were too few for any result. Beside
        it, ``results.csv`` has one row per arm, task, metric and seed.

    Raises:
        ConfigError: If the task is neither a task card nor text.
        NothingToReport: If there is no result, and `minutes` is None.
        DanaError: If a component is unknown (see :func:`plan_run`); or if steps failed, after all
            others are done.
    """
    run = plan_run(settings, quick)
    check_pool(settings)
    refuse_mixed_precision(run)
    _describe_tasks(settings, quick)
    log.info("%s", summary_text(run))
    progress = Progress(run.folder, milestones(run))

    def tell(step: Step, output: str) -> None:
        _show_selection(step, output)
        if step.name.partition("/")[0] == PILOT:
            log.info("pilot     %s", choice_text(Path(output)))
        progress.tell(step)

    made = execute(run, settings.jobs, tell, remake, minutes)
    if minutes is not None:
        log.info("minutes   %s", left_out_text(run, made) or "they were enough for all steps")
    out = Path(settings.out)
    # Written after the steps, so that it is the recipe of a run that succeeded; it writes on the first
    # process alone.
    write_recipe(settings, out)
    arms = _with_base(_arms_to_run(settings, quick))
    on_rank_0(lambda: join_run(out, arms))

    def report() -> Path:
        try:
            return report_stage(out)
        except NothingToReport:
            if minutes is None:
                raise
            log.info("report    none yet: the time was over before there was anything to compare")
            return out / "report.html"

    return on_rank_0(report)


def _describe_tasks(settings: RunSettings, quick: bool) -> None:
    """Log, for each task, its labels, its texts, and the smallest difference that so many texts can show.

    Args:
        settings: Settings of the run.
        quick: Whether the run ends earlier: see :func:`plan_run`.
    """
    folds = count_folds(settings)
    has_no_labels = _has_no_labels(settings)
    if has_no_labels:
        hint = "for labels: dana init, or a task card"
        what = f"has no labels: arms are compared by the loss of held-out text ({hint})"
        log.info("task      %s %s", settings.task, what)
    cards = settings.cards
    if not cards and not has_no_labels:
        cards = [settings.task]
    adaptation_count = _count_adaptations(settings, folds)
    for name in cards:
        lines = describe_power(
            settings.finetune.fields_of(load_card(name)),
            settings.data,
            count=adaptation_count,
            quick=min(adaptation_count, QUICK_ADAPTATIONS) if quick else None,
            is_folded=name in folds,
            is_probed=settings.probe.enabled,
            max_train=settings.finetune.max_train,
        )
        for number, line in enumerate(lines):
            log.info("%-9s %s", "" if number else "task", line)


def _count_adaptations(settings: RunSettings, folds: Mapping[str, int]) -> int:
    """Return how many adaptations, or folds, a whole run has.

    Args:
        settings: Settings of the run.
        folds: Number of folds by card, of those that have some; all have equally many.
    """
    adaptations = settings.seeds.adaptations
    if not folds:
        return adaptations
    number_of_folds = next(iter(folds.values()))
    return min(number_of_folds, adaptations)


def _show_selection(step: Step, output: str) -> None:
    """Log a first look at the text that an arm selects, of the first adaptation."""
    arm = step.labels.get("arm", "")
    is_first_selection = step.name == f"weigh/{arm}{suffix(0)}"
    is_random = arm == "random"
    if is_first_selection and not is_random:
        log.info("selected  %s: %s", arm, first_look(open_artifact(Path(output), "weights")))


def plan_run(settings: RunSettings, quick: bool = False) -> Run:
    """Plan the steps of a recipe, after checking that every component in it exists.

    Args:
        settings: Settings of the run.
        quick: Whether to plan only some of these steps. If the recipe has the arms ``random`` and
            ``dana``, the others are left out, except those that these two continue from. There are
            at most three adaptations or folds. Tasks that are probed are not fine-tuned.

    Returns:
        The steps, in the order in which one process does them, and the folder of the run.

    Raises:
        DanaError: If a component is unknown; names the arm.
    """
    check_seeds(settings)
    if settings.final:
        check_final(settings, _cards_of(settings))
    # Each of the next calls raises an error if what it names does not exist.
    with _naming("model"):
        if settings.model:
            load_config(settings.model)
            read_pooling(settings.model)
    with _naming("selection"):
        settings.selection.splitter()
    specs_by_arm: dict[str, tuple[str, str]] = {}
    for arm in settings.described_arms:
        with _naming(f"arms.{arm.name}"):
            if arm.is_adapted:
                before_pilot(arm.adapt).make_objective().check_inputs()
            if arm.selects:
                specs_by_arm[arm.name] = _selector_of(arm, settings)
    steps = list(_steps(settings, specs_by_arm, quick))
    if settings.final:
        steps = _with_final_steps(steps, settings, specs_by_arm, quick)
    return Run(Path(settings.out), tuple(steps))


def check_pool(settings: RunSettings) -> None:
    """Look for the files of the pool, before any work, unless the run has read them.

    URLs and standard input are read only once, by the step that reads the pool.

    Raises:
        DanaError: See :func:`dana.stages.texts.check_sources`.
    """
    out = Path(settings.out)
    if part_files(out / "pool"):
        return
    not_read_yet = [source for source in settings.pool if not (is_url(source) or source == STDIN)]
    check_sources(not_read_yet, out)


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Begin the message of an error with the key of the recipe that it is about."""
    try:
        yield
    except DanaError as error:
        error.args = (f"{key}: {error}",)
        raise


def _with_final_steps(
    steps: Sequence[Step],
    settings: RunSettings,
    specs_by_arm: dict[str, tuple[str, str]],
    quick: bool,
) -> list[Step]:
    """Add the steps that end a run in a model and an encoder."""
    cards = _cards_of(settings)
    [card] = cards.values()  # check_final refuses a run with more than one, or none
    arm = arm_of_encoder(_arms_to_run(settings, quick))
    folds = count_folds(settings)
    folds_of_card = folds.get(card, 0)
    # Without folds the first adaptation reads all labelled texts, so the encoder needs no steps of its
    # own.
    steps_of_all_texts: list[Step] = []
    if arm is not None and settings.task in folds:
        steps_of_all_texts = list(_steps_of_all_texts(settings, specs_by_arm, arm, cards))
    return list(with_final(steps, settings, cards, arm, folds_of_card, steps_of_all_texts))


def _steps_of_all_texts(
    settings: RunSettings,
    specs_by_arm: dict[str, tuple[str, str]],
    arm: Arm,
    cards: Mapping[str, str],
) -> Iterator[Step]:
    """Yield the steps that adapt one arm with all labelled texts: its texts, its selection and, last, its adaptation.

    Args:
        settings: Settings of the run.
        specs_by_arm: Specs of selector and detector, by the name of each arm that selects text.
        arm: The arm whose adapted model becomes the encoder.
        cards: Card of each task.
    """
    text_settings = _settings_of_texts(settings)
    folds = count_folds(settings)
    study_step_names = {step.name for step in _study_steps(settings, text_settings)}
    arms_by_name = {other.name: other for other in settings.described_arms}
    arms = _with_predecessors(arm, arms_by_name)
    # Folds are numbered from 0. The number after the last belongs to no text, so leaving it out leaves
    # out nothing.
    no_fold = folds[settings.task]
    yield from _task_steps(settings, text_settings, specs_by_arm, ALL_TEXTS, no_fold)
    yield from _score_and_weigh_steps(
        settings, arms, specs_by_arm, study_step_names, ALL_TEXTS, ALL_TEXTS
    )
    yield from pilot_steps(settings, arms, cards, ALL_TEXTS, ALL_TEXTS, folds)
    yield from _adapt_steps(settings, arms, ALL_TEXTS, ALL_TEXTS, with_gates=False)


def _arms_to_run(settings: RunSettings, quick: bool) -> list[Arm]:
    """Return all arms, or those of a quick run and the arms that these continue from.

    Args:
        settings: Settings of the run.
        quick: See :func:`plan_run`.

    Returns:
        The arms, in the order of the recipe.
    """
    by_name = {arm.name: arm for arm in settings.described_arms}
    has_quick_arms = by_name.keys() >= QUICK_ARMS
    if not (quick and has_quick_arms):
        return list(by_name.values())
    names: set[str] = set()
    for name in QUICK_ARMS:
        names.update(arm.name for arm in _with_predecessors(by_name[name], by_name))
    return [arm for arm in by_name.values() if arm.name in names]


def _with_predecessors(arm: Arm, by_name: Mapping[str, Arm]) -> list[Arm]:
    """Return the arms that an arm continues from, the first of them first, and then the arm itself."""
    arms = [arm]
    while arms[0].after:
        arms.insert(0, by_name[arms[0].after])
    return arms


def _with_base(arms: Iterable[Arm]) -> list[str]:
    """Return the name of the base and then those of the arms, each once.

    A recipe may list the base among its arms.
    """
    names = [BASE, *(arm.name for arm in arms)]
    return list(dict.fromkeys(names))


def _selector_of(arm: Arm, settings: RunSettings) -> tuple[str, str]:
    """Check the specs of an arm's selector and detector, and return them.

    Returns:
        The spec of the selector, and that of the detector, which is empty if none is used.
    """
    detector = arm.detector or settings.detector
    check_names(replace(settings, selector=arm.selector, detector=detector))
    selector = build_selector(arm.selector, detector, settings.selection)
    uses_detector = "detector" in selector.uses
    if arm.detector and not uses_detector:
        raise ConfigError(
            f"detector={arm.detector!r} has no effect with selector {arm.selector}; remove it"
        )
    if not uses_detector:
        return arm.selector, ""
    return arm.selector, detector


def _steps(
    settings: RunSettings, specs_by_arm: dict[str, tuple[str, str]], quick: bool
) -> Iterator[Step]:
    """Yield all steps in the order of their dependencies, what costs seconds first.

    First come the baselines, the probe of the base, the texts, the studies and the base.
    Then, for each block of :func:`_blocks`: the adaptations of all arms with their probes, the other
    ways of fine-tuning for the model at the end, the fine-tunings, and a look at the results. So a
    run that was stopped has the same adaptations of all arms.

    Args:
        settings: Settings of the run.
        specs_by_arm: Specs of selector and detector, by the name of each arm that selects text; the
            detector is empty where the selector uses none.
        quick: See :func:`plan_run`.
    """
    folds = count_folds(settings)
    cards = _cards_of(settings)
    adaptation_count = _count_adaptations(settings, folds)
    yield from _first_steps(settings, cards, adaptation_count, folds)
    text_settings = _settings_of_texts(settings)
    yield Step("texts", f"{__name__}:read_texts", {"settings": text_settings})
    study_steps = _study_steps(settings, text_settings)
    yield from study_steps
    yield _base_step(settings)
    study_step_names = {step.name for step in study_steps}
    methods: list[str] = []
    if settings.final and not quick:
        [card] = cards.values()  # check_final refuses a run with more than one
        methods = methods_tried(settings, card, folds.get(card, 0))
    plan = _Plan(
        settings=settings,
        specs_by_arm=specs_by_arm,
        text_settings=text_settings,
        cards=cards,
        folds=folds,
        study_step_names=study_step_names,
        methods=methods,
    )
    steps_with_results: list[str] = []  # a look waits for these
    for block in _blocks(settings, cards, adaptation_count):
        if quick and block[0] >= QUICK_ADAPTATIONS:
            return
        for index in block:
            steps = list(_adaptation_steps(plan, index, quick))
            # Without labels the losses are the results; with labels, the fine-tunings below are.
            steps_with_results += [step.name for step in steps if step.name.startswith("loss/")]
            yield from steps
        for index in block:
            yield from _candidate_steps(plan, index)
        for index in block:
            tunings = list(_finetune_steps(plan, index, quick))
            steps_with_results += [step.name for step in tunings]
            yield from tunings
            is_time_to_look = FIRST_LOOK <= index + 1 < adaptation_count
            if settings.seeds.stop_early and not quick and is_time_to_look:
                yield _look_step(plan, index, adaptation_count, steps_with_results)


def _study_steps(settings: RunSettings, text_settings: RunSettings) -> list[Step]:
    """Return the steps of all studies.

    Each installed study may have a function ``steps``, which plans its own from both settings.

    Args:
        settings: Settings of the run.
        text_settings: Result of :func:`_settings_of_texts`.
    """
    steps: list[Step] = []
    for _study, plan_steps in load_parts("steps"):
        steps += plan_steps(settings, text_settings)
    return steps


@dataclass(frozen=True)
class _Plan:
    """What the steps of every adaptation have in common.

    Attributes:
        settings: Settings of the run.
        specs_by_arm: Specs of selector and detector, by the name of each arm that selects text; the
            detector is empty where the selector uses none.
        text_settings: Settings of reading text.
        cards: Card of each task by its name; empty without labels.
        folds: Number of folds by card, of those that have some.
        study_step_names: Names of the steps of studies.
        methods: Ways of fine-tuning that are tried beside that of the arms.
    """

    settings: RunSettings
    specs_by_arm: dict[str, tuple[str, str]]
    text_settings: RunSettings
    cards: Mapping[str, str]
    folds: Mapping[str, int]
    study_step_names: Collection[str]
    methods: Sequence[str]

    def fold_of(self, index: int) -> int:
        """Return the fold whose texts an adaptation's target text leaves out.

        It is 0 for every adaptation if the task has no folds.
        """
        return index if self.text_settings.task in self.folds else 0

    def has_own_target(self, index: int) -> bool:
        """Return whether an adaptation reads its own target text.

        Without folds all share the first's.
        """
        return self.fold_of(index) == index

    def makers(self, arms: Sequence[Arm], index: int) -> dict[str, str]:
        """Return, for the base and then each arm, the name of the step that makes its model."""
        makers = {BASE: BASE}
        for arm in arms:
            makers[arm.name] = f"adapt/{arm.name}{suffix(index)}" if arm.is_adapted else BASE
        return makers


def _cards_of(settings: RunSettings) -> dict[str, str]:
    """Return the card of each task of a run by its name; none for text without labels."""
    if _has_no_labels(settings):
        return {}
    return cards_by_name(settings.cards or [settings.task])


def _settings_of_texts(settings: RunSettings) -> RunSettings:
    """Return the settings that decide which texts are read, all others as they are by default."""
    values = {name: getattr(settings, name) for name in TEXT_SETTINGS}
    text_settings = replace(RunSettings(), **values)
    selection = replace(
        Selection(), seed=settings.selection.seed, language=settings.selection.language
    )
    # Cards with folds test a part of their labelled texts, so these are left out of every text that is
    # read. The texts of a published test split are left out only where hygiene.decontaminate names
    # the card.
    divided = [card for card in settings.cards if load_card(card).is_divided]
    return replace(text_settings, selection=selection, cards=divided)


def _first_steps(
    settings: RunSettings,
    cards: Mapping[str, str],
    adaptation_count: int,
    folds: Mapping[str, int],
) -> Iterator[Step]:
    """Yield the steps that cost seconds and need no pool: baselines, and the probe of the base.

    Args:
        settings: Settings of the run.
        cards: Card of each task.
        adaptation_count: Number of adaptations or folds of a whole run.
        folds: Number of folds by card.
    """
    if settings.baseline_names:
        for task, card in cards.items():
            tested_folds = adaptation_count if card in folds else None
            yield baseline_step(settings, task, card, tested_folds)
    yield from base_probe_steps(settings, cards, range(adaptation_count), folds)


def _base_step(settings: RunSettings) -> Step:
    """Make the step that prepares the model that the arms adapt."""
    arguments: dict[str, Any] = {
        "out": Path(settings.out),
        "model": settings.model,
        "size": settings.size,
        "pretrain": settings.pretrain,
        "adapt": _base_adapt_settings(settings),
    }
    return Step(BASE, f"{__name__}:base_model", arguments, after=("texts",))


def _blocks(settings: RunSettings, cards: Mapping[str, str], adaptation_count: int) -> list[range]:
    """Divide the adaptations into those that are fine-tuned together.

    If a task is probed, the first ones, which a quick run has, are all adapted and probed before
    any is fine-tuned: the probe answers in minutes. Else each adaptation is fine-tuned before the
    next.

    Returns:
        Ranges of indices of adaptations.
    """
    first = 1
    if any(is_probed(settings, card) for card in cards.values()):
        first = min(adaptation_count, QUICK_ADAPTATIONS)
    blocks = [range(first)]
    for index in range(first, adaptation_count):
        blocks.append(range(index, index + 1))
    return blocks


def _cards_to_tune(plan: _Plan, quick: bool) -> dict[str, str]:
    """Return the cards of the tasks that are fine-tuned.

    A quick run fine-tunes what has no probe.
    """
    return {
        task: card
        for task, card in plan.cards.items()
        if not (quick and is_probed(plan.settings, card))
    }


def _adaptation_steps(plan: _Plan, index: int, quick: bool) -> Iterator[Step]:
    """Yield the steps of one adaptation of all arms, up to the probes of their models.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
        quick: See :func:`plan_run`.
    """
    settings = with_seed(plan.settings, index)
    arms = _arms_to_run(settings, quick)
    fold = plan.fold_of(index)
    makers = plan.makers(arms, index)
    if plan.has_own_target(index):
        yield from _task_steps(settings, plan.text_settings, plan.specs_by_arm, fold)
    yield from _score_and_weigh_steps(
        settings, arms, plan.specs_by_arm, plan.study_step_names, index, fold
    )
    yield from pilot_steps(settings, arms, plan.cards, index, fold, plan.folds)
    yield from _adapt_steps(settings, arms, index, fold)
    if not plan.cards:
        # No arm has the objective auto here: pilot_steps has refused it without labels.
        for arm in arms:
            if arm.is_adapted:
                require_saved_head(arm.adapt)
        for arm_name, maker in makers.items():
            yield from loss_steps(settings, arm_name, OutputOf(maker), index)
    # Probes and searches do not use the seeds of selection and adaptation.
    yield from probe_steps(plan.settings, plan.cards, makers, index, plan.folds)
    if index == 0:
        target, pool = held_out_folders(Path(plan.settings.out))
        yield from retrieval_steps(plan.settings, makers, {"target": target, "pool": pool})


def _look_step(
    plan: _Plan, index: int, adaptation_count: int, steps_with_results: Sequence[str]
) -> Step:
    """Make the step that looks at the results so far, and may stop the run.

    Args:
        plan: What all adaptations have in common.
        index: Index of the newest adaptation.
        adaptation_count: Number of adaptations of the whole run.
        steps_with_results: Names of the steps that make the results so far.
    """
    look = {
        "out": Path(plan.settings.out),
        "arms": _with_base(plan.settings.described_arms),
        "adaptations": index + 1,
        "horizon": adaptation_count,
    }
    stage = "dana.stages.report:look_stage"
    return Step(f"look/{index}", stage, look, after=tuple(steps_with_results), stops=True)


def _finetune_steps(plan: _Plan, index: int, quick: bool) -> Iterator[Step]:
    """Yield the steps that fine-tune each arm's model of one adaptation on each task.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
        quick: See :func:`plan_run`.
    """
    settings = plan.settings
    seeds = settings.seeds.of_adaptation(index)
    makers = plan.makers(_arms_to_run(settings, quick), index)
    for task, card in _cards_to_tune(plan, quick).items():
        folder = Path(settings.out) / "finetune" / task
        for arm, maker in makers.items():
            tuning = TaskRun(
                model=OutputOf(maker),
                card=card,
                settings=settings.finetune,
                out=folder / arm,
                name=f"{task}/{arm}",
                data=settings.data,
                labels={"task": task, "arm": arm},
                twin=None if arm == BASE else folder / BASE,
            )
            yield from tuning.steps(index, seeds, has_folds=card in plan.folds)


def _candidate_steps(plan: _Plan, index: int) -> Iterator[Step]:
    """Yield the steps that fine-tune the base and the adapted model in other ways, for the choice at the end.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
    """
    settings = plan.settings
    if not plan.methods:
        return
    [card] = plan.cards.values()
    arms = _arms_to_run(settings, quick=False)
    makers = plan.makers(arms, index)
    for method in plan.methods:
        folder = Path(settings.out) / CANDIDATE / method
        for name in names_of_models(arm_of_encoder(arms)):
            candidate = TaskRun(
                model=OutputOf(makers[name]),
                card=card,
                settings=settings.finetune.by_method(method),
                out=folder / name,
                name=f"{method}/{name}",
                data=settings.data,
                first=CANDIDATE,
                twin=None if name == BASE else folder / BASE,
            )
            seeds = [index]  # one fine-tuning of each adaptation or fold
            yield from candidate.steps(index, seeds, has_folds=card in plan.folds)


def _has_no_labels(settings: RunSettings) -> bool:
    """Return whether the task of a run is text without labels.

    The arms of such a run are compared by their losses on held-out text.
    """
    names_only_task = bool(settings.task) and not settings.cards
    if not names_only_task:
        return False
    return is_text(settings.task) and find_card(settings.task) is None


def _task_steps(
    settings: RunSettings,
    text_settings: RunSettings,
    specs_by_arm: dict[str, tuple[str, str]],
    fold: int,
    left_out: int | None = None,
) -> Iterator[Step]:
    """Yield the steps of the target text of a run, or of one fold: reading and ranking.

    Args:
        settings: Settings of the run.
        text_settings: Settings of the reading of texts.
        specs_by_arm: Specs of selector and detector, by the name of each arm that selects text; the
            detector is empty where the selector uses none.
        fold: Number in the names of steps and folders, or :data:`ALL_TEXTS`.
        left_out: Fold whose texts are left out; None takes `fold`.
    """
    if left_out is None:
        left_out = fold
    folder = folder_of_adaptation(Path(settings.out), fold)
    ending = suffix(fold)
    if fold != 0:  # the step "texts" has read the target text of fold 0, or of a run without folds
        arguments = {"settings": text_settings, "folder": folder / "target", "fold": left_out}
        yield Step(f"texts{ending}", "dana.stages.texts:read_target", arguments, after=("texts",))
    if any(detector == "auto" for _, detector in specs_by_arm.values()):
        # Of the settings of the weights a ranking uses only the share, so that a change of another one
        # does not make it rank again.
        weigh = WeighSettings(beta=settings.weigh.share)
        ranking = replace(
            text_settings, selection=settings.selection, ranking=settings.ranking, weigh=weigh
        )
        arguments = {"settings": ranking, "fold_folder": folder}
        yield Step(f"rank{ending}", f"{__name__}:rank_texts", arguments, after=(f"texts{ending}",))


def _base_adapt_settings(settings: RunSettings) -> AdaptSettings:
    """Return the adapt settings that the base model depends on, others at their defaults.

    They are those of the head's warm-up; a base from scratch depends on none.
    """
    adapt = before_pilot(settings.adapt)
    names = HEAD_SETTINGS if settings.model else ()
    values = {name: getattr(adapt, name) for name in names}
    return replace(AdaptSettings(), **values)


def _score_and_weigh_steps(
    settings: RunSettings,
    arms: Sequence[Arm],
    specs_by_arm: dict[str, tuple[str, str]],
    study_step_names: Collection[str],
    index: int,
    fold: int,
) -> Iterator[Step]:
    """Yield the steps of scores and of weights of one adaptation.

    Args:
        settings: Settings of the run.
        arms: The arms to run.
        specs_by_arm: Specs of selector and detector, by the name of each arm of the recipe that
            selects text. Arms with equal specs share scores, named after the first of them in the
            recipe, even if a quick run leaves it out.
        study_step_names: Names of the steps of studies; an arm that balances its budget over the
            table of one of them waits for it.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    first_arm_of: dict[tuple[str, str], str] = {}
    for name, specs in specs_by_arm.items():
        first_arm_of.setdefault(specs, name)
    scored: set[tuple[str, str]] = set()
    for arm in arms:
        if not arm.selects:
            continue
        specs = specs_by_arm[arm.name]
        # An arm with the specs of an earlier one waits for that one's step, and yields none.
        score_step = _score_step(settings, first_arm_of[specs], specs, index, fold)
        if specs not in scored:
            scored.add(specs)
            yield score_step
        yield _weigh_step(settings, arm, score_step.name, study_step_names, index)


def _score_step(
    settings: RunSettings, owner: str, specs: tuple[str, str], index: int, fold: int
) -> Step:
    """Make the step that scores the pool.

    Args:
        settings: Settings of the run.
        owner: Name of the arm that the scores are named after.
        specs: Specs of its selector and detector.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    selector, detector = specs
    out = Path(settings.out)
    folder = folder_of_adaptation(out, index)
    scores = folder / "arms" / owner / "scores"
    # The recipe's own selector shares the folder of dana score, so that neither scores again what
    # the other has scored.
    if selector == settings.selector_spec and detector in ("", settings.detector):
        scores = folder / "scores"
    arguments = {
        "out": out,
        "fold_folder": folder_of_adaptation(out, fold),
        "selector": selector,
        "detector": detector,
        "folder": scores,
        "allowed": settings.allow_below_chance,
        "selection": settings.selection,
    }
    reading_step = "rank" if detector == "auto" else "texts"
    return Step(
        f"score/{owner}{suffix(index)}",
        "dana.stages.score:score_read",
        arguments,
        after=(f"{reading_step}{suffix(fold)}",),
    )


def _weigh_step(
    settings: RunSettings, arm: Arm, score_step: str, study_step_names: Collection[str], index: int
) -> Step:
    """Make the step that turns the scores of an arm into weights.

    Args:
        settings: Settings of the run.
        arm: The arm.
        score_step: Name of the step that makes its scores.
        study_step_names: Names of the steps of studies.
        index: Index of the adaptation.

    Raises:
        ConfigError: If the arm balances its budget over a table that is not there.
    """
    out = Path(settings.out)
    arguments = {
        "scores": OutputOf(score_step),
        "pool": out / "pool",
        "settings": arm.weigh,
        "allowed": settings.allow_below_chance,
        "folder": folder_of_adaptation(out, index) / "arms" / arm.name / "weights",
    }
    if arm.weigh and arm.weigh.balance:
        table = parse_balance(arm.weigh.balance).table
        # The table of a study of this run is passed on as `groups`. weigh_stage finds any other one, in
        # the folder of the run or at the path.
        is_made = table in study_step_names
        is_there = bool(part_files(out / table) or part_files(Path(table)))
        what = f"a table of groups, in {out} or at a path"
        require(is_made or is_there, "balance", arm.weigh.balance, what)
        if is_made:
            arguments["groups"] = OutputOf(table)
    return Step(
        f"weigh/{arm.name}{suffix(index)}",
        "dana.stages.weigh:weigh_stage",
        arguments,
        labels={"arm": arm.name},
    )


def _adapt_steps(
    settings: RunSettings, arms: Sequence[Arm], index: int, fold: int, with_gates: bool = True
) -> Iterator[Step]:
    """Yield the steps that adapt each arm's model, for one adaptation.

    Args:
        settings: Settings of the run.
        arms: The arms to run.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
        with_gates: Whether the first arm with each selection gets a gate before its adaptation: a step
            that measures on the base what the selected text could teach it. Controls get none.
    """
    gated: list[tuple[Any, ...]] = []
    for arm in arms:
        if not arm.is_adapted:
            continue
        texts = _training_texts(settings, arm, index, fold)
        selection = (arm.selector, arm.detector, arm.weigh)
        takes_gate = with_gates and arm.selects and not is_control(arm.name)
        if takes_gate and selection not in gated:
            gated.append(selection)
            yield _gate_step(settings, arm, texts, index, fold)
        yield _adapt_step(settings, arm, texts, index, fold)


def _training_texts(settings: RunSettings, arm: Arm, index: int, fold: int) -> dict[str, Any]:
    """Return the arguments that name an arm's texts, which its gate and its adaptation read."""
    out = Path(settings.out)
    target_heldout, _ = held_out_folders(folder_of_adaptation(out, fold))
    _, pool_heldout = held_out_folders(out)
    return {
        "pool": out / "pool",
        "weights": OutputOf(f"weigh/{arm.name}{suffix(index)}") if arm.selects else None,
        "target_heldout": target_heldout,
        "pool_heldout": pool_heldout,
    }


def _gate_step(
    settings: RunSettings, arm: Arm, texts: Mapping[str, Any], index: int, fold: int
) -> Step:
    """Make the step that measures, on the base, what an arm's selected text could teach it.

    Args:
        settings: Settings of the run.
        arm: The arm.
        texts: Result of :func:`_training_texts`.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    arguments: dict[str, Any] = {
        **texts,
        "model": OutputOf(BASE),
        "settings": before_pilot(arm.adapt),
        "out": folder_of_adaptation(Path(settings.out), index) / "arms" / arm.name / "gate",
    }
    return _step_of_arm("gate", "dana.stages.gate:gate_stage", arguments, arm, index, fold)


def _adapt_step(
    settings: RunSettings, arm: Arm, texts: Mapping[str, Any], index: int, fold: int
) -> Step:
    """Make the step that adapts an arm's model.

    Args:
        settings: Settings of the run.
        arm: The arm.
        texts: Result of :func:`_training_texts`.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    ending = suffix(index)
    arguments: dict[str, Any] = {
        **texts,
        "model": OutputOf(f"adapt/{arm.after}{ending}" if arm.after else BASE),
        "settings": arm.adapt,
        "out": folder_of_adaptation(Path(settings.out), index) / "arms" / arm.name / "adapted",
    }
    stage = "dana.stages.training:adapt_stage"
    if arm.adapt.is_auto:
        stage = "dana.stages.pilot:adapt_chosen"
        arguments["pilot"] = OutputOf(pilot_name(settings, index))
    if before_pilot(arm.adapt).make_objective().cuts_sentences:
        arguments["language"] = settings.selection.language
    return _step_of_arm("adapt", stage, arguments, arm, index, fold)


def _step_of_arm(
    verb: str, stage: str, arguments: dict[str, Any], arm: Arm, index: int, fold: int
) -> Step:
    """Make a step of an arm and adaptation, after the texts of a fold are read."""
    name = f"{verb}/{arm.name}{suffix(index)}"
    after = (f"texts{suffix(fold)}",)
    return Step(name, stage, arguments, after=after, labels={"arm": arm.name})


def read_texts(settings: RunSettings) -> Artifact:
    """Read both texts of a run and return the pool; see :func:`dana.stages.texts.open_texts`."""
    _, pool = open_texts(settings, selects=False)
    return pool.artifact


def rank_texts(settings: RunSettings, fold_folder: Path) -> Artifact:
    """Rank the detectors on the target text of a run, or of a fold, and log the comparison.

    Args:
        settings: Settings of the run.
        fold_folder: Folder with the target text, which gets the ranking.
    """
    ranking = rank_stage(
        target=TargetText.open(fold_folder / "target"),
        pool=PoolText.open(Path(settings.out) / "pool"),
        selection=settings.selection,
        settings=settings.ranking,
        folder=fold_folder / RANKING,
        budget=settings.weigh.share,
    )
    log.info("%s", comparison_text(ranking.manifest))
    return ranking


def base_model(
    out: Path, model: str | None, size: str, pretrain: PretrainSettings, adapt: AdaptSettings
) -> str:
    """Prepare the model that the arms adapt, and tokenise the pool for it once.

    Args:
        out: Folder of the run.
        model: Folder or Hub name; None trains one from scratch.
        size: Size of a model from scratch.
        pretrain: Settings of training from scratch.
        adapt: Settings of the arms, which define how a missing language-model head is warmed up.

    Returns:
        `model` itself if it has a language-model head, or the objective needs none; else the folder
        of what was made.
    """
    pool = out / "pool"
    target_heldout, pool_heldout = held_out_folders(out)
    held_out_stage(pool, pool_heldout)
    if model is None:
        trained = pretrain_stage(size, pool, target_heldout, pool_heldout, pretrain, out / "base")
        base = str(trained.path)
    else:
        data = TrainingData(
            pool=pool, weights=None, target_heldout=target_heldout, pool_heldout=pool_heldout
        )
        base = head_stage(model, data, adapt, out / "base")
    pack_stage(pool, load_own_tokenizer(base))
    return base
