"""``dana run``: run a recipe as steps, from text to fine-tuned models, and report on results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    AdaptedModel,
    arms_of_models,
    check_final,
    methods_tried,
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
from dana.stages.pilot import choice_text, settings_before_pilot
from dana.stages.pilot_steps import PILOT, pilot_name, pilot_steps, training_texts
from dana.stages.plan import left_out_text, summary_text
from dana.stages.power import describe_power
from dana.stages.probe_steps import base_probe_steps, is_probed, probe_steps, retrieval_steps
from dana.stages.progress import Progress
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
    unlabelled_folder,
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
from dana.train.settings import UNLABELLED, AdaptSettings, PretrainSettings
from dana.weighting.settings import WeighSettings, parse_balance

log = get_logger(__name__)

# The settings that decide which text is read. Others can change without reading it again.
TEXT_SETTINGS = ("out", "task", "pool", "unlabelled", "data", "on_bad_record", "inputs", "hygiene")
# The settings of an adaptation that decide how a missing head is warmed up, likewise.
HEAD_SETTINGS = ("objective", "seed", "max_tokens", "denominator", "execution", "head_warmup")

NEXT_LINE = "\n          "  # a further line of a log message begins below the text of the first
# What a quick run does of a recipe that has these arms: they and the arm of the texts without labels,
# and so many of its adaptations.
QUICK_ARMS = {"random", "dana"}
QUICK_ADAPTATIONS = 3


@dataclass(frozen=True)
class _Plan:
    """What the steps of every adaptation have in common.

    Attributes:
        settings: Settings of the run.
        quick: See :func:`plan_run`.
        arms: All arms of the recipe, each with the detector that it uses (:func:`_with_detector`).
        text_settings: Settings of reading text.
        cards: Card of each task by its name; empty without labels.
        folds: Number of folds by card, of those that have some.
        adaptation_count: Number of adaptations or folds of a whole run.
        study_steps: The steps of studies.
        methods: Ways of fine-tuning that are tried beside that of the arms.
    """

    settings: RunSettings
    quick: bool
    arms: Sequence[Arm]
    text_settings: RunSettings
    cards: Mapping[str, str]
    folds: Mapping[str, int]
    adaptation_count: int
    study_steps: Sequence[Step]
    methods: Sequence[str]

    @property
    def arms_to_run(self) -> list[Arm]:
        """The arms that this run has: all, or those of a quick run."""
        return _arms_to_run(self.arms, self.quick)

    def arms_with_seed(self, seed: int) -> list[Arm]:
        """Return the arms that this run has, with the seed of an adaptation."""
        return [replace(arm, adapt=replace(arm.adapt, seed=seed)) for arm in self.arms_to_run]

    def fold_of(self, index: int) -> int:
        """Return the fold whose texts an adaptation's target text leaves out.

        It is 0 for every adaptation if the task has no folds.
        """
        return index if self.settings.task in self.folds else 0

    def has_own_target(self, index: int) -> bool:
        """Return whether an adaptation reads its own target text.

        Without folds all share the first's.
        """
        return index == 0 or self.settings.task in self.folds

    def makers(self, index: int) -> dict[str, str]:
        """Return, for the base and then each arm, the name of the step that makes its model."""
        makers = {BASE: BASE}
        for arm in self.arms_to_run:
            makers[arm.name] = f"adapt/{arm.name}{suffix(index)}" if arm.is_adapted else BASE
        return makers


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
    describe_tasks(settings, quick)
    log.info("%s", summary_text(run))
    progress = Progress(run)

    def tell(step: Step, output: str) -> None:
        _log_choice(step, output)
        progress.tell(step)

    made = execute(run, settings.jobs, tell, remake, minutes)
    if minutes is not None:
        log.info("minutes   %s", left_out_text(run, made) or "they were enough for all steps")
    out = Path(settings.out)
    # Written after the steps, so that it is the recipe of a run that succeeded.
    write_recipe(settings, out)
    arms = _arms_to_run(settings.described_arms, quick)
    on_rank_0(lambda: join_run(out, _names_with_base(arms)))
    return on_rank_0(lambda: _report(out, may_be_empty=minutes is not None))


def _report(out: Path, may_be_empty: bool) -> Path:
    """Report on a run, and return the path of the report.

    Args:
        out: Folder of the run.
        may_be_empty: Whether a run without any result is no error. It then has no report.

    Raises:
        NothingToReport: If there is no result, and there has to be one.
    """
    try:
        return report_stage(out)
    except NothingToReport:
        if not may_be_empty:
            raise
        log.info("report    none yet: the time was over before there was anything to compare")
        return out / "report.html"


def describe_tasks(settings: RunSettings, quick: bool) -> None:
    """Log, for each task, its labels, its texts, and the smallest difference that so many texts can show.

    Args:
        settings: Settings of the run.
        quick: Whether the run ends earlier: see :func:`plan_run`.
    """
    folds = count_folds(settings)
    if _has_no_labels(settings):
        log.info(
            "task      %s has no labels: arms are compared by the loss of held-out text (for labels: "
            "dana init, or a task card)",
            settings.task,
        )
        return
    adaptation_count = _count_adaptations(settings, folds)
    quick_count = min(adaptation_count, QUICK_ADAPTATIONS) if quick else None
    for name in settings.cards or [settings.task]:
        lines = describe_power(
            settings.finetune.fields_of(load_card(name)),
            settings.data,
            count=adaptation_count,
            quick_count=quick_count,
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


def _log_choice(step: Step, output: str) -> None:
    """Log what a finished step chose: a pilot its objective, the first selection of an arm its text.

    Args:
        step: The step; of others nothing is logged.
        output: Path of what it made.
    """
    if step.name.partition("/")[0] == PILOT:
        log.info("pilot     %s", choice_text(Path(output)))
    arm = step.labels.get("arm", "")
    is_first_selection = step.name == f"weigh/{arm}{suffix(0)}"
    is_random = arm == "random"
    if is_first_selection and not is_random:
        look = first_look(open_artifact(Path(output), "weights"))
        log.info("selected  %s: %s", arm, look.replace("\n", NEXT_LINE))


def plan_run(settings: RunSettings, quick: bool = False) -> Run:
    """Plan the steps of a recipe, after checking that every component in it exists.

    Args:
        settings: Settings of the run.
        quick: Whether to plan only some of these steps. If the recipe has the arms ``random`` and
            ``dana``, the others are left out, except ``unlabelled`` and those that these continue
            from. There are at most three adaptations or folds. Tasks that are probed are not
            fine-tuned.

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
    arms = []
    for arm in settings.described_arms:
        with _naming(f"arms.{arm.name}"):
            if arm.is_adapted:
                settings_before_pilot(arm.adapt).make_objective().check_inputs()
            checked = _with_detector(arm, settings) if arm.selects else arm
        arms.append(checked)
    _check_unlabelled(settings, arms)
    plan = _plan_of(settings, quick, arms)
    steps = list(_steps(plan))
    if settings.final:
        steps = list(_with_final_steps(plan, steps))
    return Run(Path(settings.out), tuple(steps))


def _check_unlabelled(settings: RunSettings, arms: Sequence[Arm]) -> None:
    """Check that a run has texts without labels if, and only if, an arm is adapted on them.

    Raises:
        ConfigError: If one is there without the other.
    """
    readers = [arm.name for arm in arms if UNLABELLED in arm.mix]
    if readers and not settings.unlabelled:
        raise ConfigError(
            f"arms.{readers[0]}: is adapted on the task's texts without labels, and the run has none; "
            f"name their files by {UNLABELLED}"
        )
    if settings.unlabelled and not readers:
        raise ConfigError(
            f"{UNLABELLED}={settings.unlabelled}: has no effect, as no arm is adapted on these texts; add "
            f"{UNLABELLED} to arms"
        )


def check_pool(settings: RunSettings) -> None:
    """Look for the files of the pool, and of the texts without labels, before any work.

    What the run has read is not looked for. URLs and standard input are read only once, by the step
    that reads the texts.

    Raises:
        DanaError: See :func:`dana.stages.texts.check_sources`.
    """
    pool = Path(settings.out) / "pool"
    sources_by_folder = {pool: settings.pool, unlabelled_folder(pool): settings.unlabelled}
    for folder, sources in sources_by_folder.items():
        if part_files(folder):
            continue
        not_read_yet = [source for source in sources if not (is_url(source) or source == STDIN)]
        check_sources(not_read_yet, Path(settings.out))


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Begin the message of an error with the key of the recipe that it is about."""
    try:
        yield
    except DanaError as error:
        error.args = (f"{key}: {error}",)
        raise


def _with_final_steps(plan: _Plan, steps: Sequence[Step]) -> Iterator[Step]:
    """Add the steps that end a run in a model and an encoder."""
    [card] = plan.cards.values()  # check_final refuses a run with more than one, or none
    folds_of_card = plan.folds.get(card, 0)
    models = []
    for arm in arms_of_models(plan.arms_to_run):
        path = _with_predecessors(arm, {other.name: other for other in plan.arms})
        # If the target text has no folds, the first adaptation reads all of it. If no target text is
        # read, the first adaptation is like any other. Then the model needs no steps of its own.
        reads_fold = plan.settings.task in plan.folds and any(step.reads_target for step in path)
        own_steps = list(_steps_of_all_texts(plan, path)) if reads_fold else []
        is_unlabelled = all(step.is_unlabelled for step in path)
        models.append(AdaptedModel(arm.name, is_unlabelled, own_steps))
    return with_final(steps, plan.settings, plan.cards, models, folds_of_card)


def _steps_of_all_texts(plan: _Plan, arms: Sequence[Arm]) -> Iterator[Step]:
    """Yield the steps that adapt one arm with all labelled texts: its texts, its selection and, last, its adaptation.

    Args:
        plan: What all adaptations have in common.
        arms: The arm, after those that it continues from.
    """
    settings = plan.settings
    # Folds are numbered from 0. The number after the last belongs to no text, so leaving it out leaves
    # out nothing.
    no_fold = plan.folds[settings.task]
    index = ALL_TEXTS
    fold = ALL_TEXTS
    yield from _target_steps(plan, settings, index, left_out=no_fold)
    yield from _score_and_weigh_steps(plan, settings, arms, index, fold)
    yield from pilot_steps(settings, arms, plan.cards, index, fold, plan.folds)
    yield from _adapt_steps(settings, arms, index, fold, with_gates=False)


def _arms_to_run(arms: Sequence[Arm], quick: bool) -> list[Arm]:
    """Return all arms, or those of a quick run and the arms that these continue from.

    Args:
        arms: The arms of the recipe.
        quick: See :func:`plan_run`.

    Returns:
        The arms, in the order of the recipe.
    """
    by_name = {arm.name: arm for arm in arms}
    has_quick_arms = by_name.keys() >= QUICK_ARMS
    if not (quick and has_quick_arms):
        return list(by_name.values())
    names: set[str] = set()
    for name in by_name.keys() & {*QUICK_ARMS, UNLABELLED}:
        names.update(arm.name for arm in _with_predecessors(by_name[name], by_name))
    return [arm for arm in by_name.values() if arm.name in names]


def _with_predecessors(arm: Arm, by_name: Mapping[str, Arm]) -> list[Arm]:
    """Return the arms that an arm continues from, the first of them first, and then the arm itself."""
    arms = [arm]
    while arms[0].after:
        arms.insert(0, by_name[arms[0].after])
    return arms


def _names_with_base(arms: Iterable[Arm]) -> list[str]:
    """Return the name of the base and then those of the arms, each once.

    A recipe may list the base among its arms.
    """
    names = [BASE, *(arm.name for arm in arms)]
    return list(dict.fromkeys(names))


def _with_detector(arm: Arm, settings: RunSettings) -> Arm:
    """Return an arm with the detector that its selector uses: its own, or that of the run.

    The detector is empty if the selector uses none.

    Raises:
        DanaError: If the selector or the detector is unknown.
        ConfigError: If the arm names a detector that its selector does not use.
    """
    detector = arm.detector or settings.detector
    check_names(replace(settings, selector=arm.selector, detector=detector))
    selector = build_selector(arm.selector, detector, settings.selection)
    uses_detector = "detector" in selector.uses
    if arm.detector and not uses_detector:
        raise ConfigError(
            f"detector={arm.detector!r} has no effect with selector {arm.selector}; remove it"
        )
    return replace(arm, detector=detector if uses_detector else "")


def _steps(plan: _Plan) -> Iterator[Step]:
    """Yield all steps in the order of their dependencies, what costs seconds first.

    First come the baselines, the probe of the base, the texts, the studies and the base.
    Then, for each block of :func:`_blocks`: the adaptations of all arms with their probes, the other
    ways of fine-tuning for the model at the end, the fine-tunings, and a look at the results. So a
    run that was stopped has the same adaptations of all arms.

    Args:
        plan: What all adaptations have in common.
    """
    yield from _first_steps(plan)
    yield Step("texts", f"{__name__}:read_texts", {"settings": plan.text_settings})
    yield from plan.study_steps
    yield _base_step(plan.settings)
    steps_with_results: list[str] = []  # a look waits for these
    for block in _blocks(plan):
        for index in block:
            steps = list(_adaptation_steps(plan, index))
            # Without labels the losses are the results; with labels, the fine-tunings below are.
            steps_with_results += [step.name for step in steps if step.name.startswith("loss/")]
            yield from steps
        for index in block:
            yield from _candidate_steps(plan, index)
        for index in block:
            tunings = list(_finetune_steps(plan, index))
            steps_with_results += [step.name for step in tunings]
            yield from tunings
            is_time_to_look = FIRST_LOOK <= index + 1 < plan.adaptation_count
            if plan.settings.seeds.stop_early and not plan.quick and is_time_to_look:
                yield _look_step(plan, index, steps_with_results)


def _plan_of(settings: RunSettings, quick: bool, arms: Sequence[Arm]) -> _Plan:
    """Work out what the steps of every adaptation have in common."""
    cards = _cards_of(settings)
    folds = count_folds(settings)
    text_settings = _settings_of_texts(settings)
    # Each installed study may have a function `steps`, which plans its own from both settings.
    study_steps: list[Step] = []
    for _study, plan_steps in load_parts("steps"):
        study_steps += plan_steps(settings, text_settings)
    methods: list[str] = []
    if settings.final and not quick:
        [card] = cards.values()  # check_final refuses a run with more than one
        methods = methods_tried(settings, card, folds.get(card, 0))
    return _Plan(
        settings=settings,
        quick=quick,
        arms=arms,
        text_settings=text_settings,
        cards=cards,
        folds=folds,
        adaptation_count=_count_adaptations(settings, folds),
        study_steps=study_steps,
        methods=methods,
    )


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
    # The texts of `cards` are left out of every text that is read. These are the cards with folds, which
    # test a part of their labelled texts. The texts of a published test split are left out only where
    # hygiene.decontaminate names the card.
    divided = [card for card in settings.cards if load_card(card).is_divided]
    return replace(text_settings, selection=selection, cards=divided)


def _first_steps(plan: _Plan) -> Iterator[Step]:
    """Yield the steps that cost seconds and need no pool: baselines, and the probe of the base."""
    settings = plan.settings
    if settings.baseline_names:
        for task, card in plan.cards.items():
            fold_count = plan.adaptation_count if card in plan.folds else None
            yield baseline_step(settings, task, card, fold_count)
    yield from base_probe_steps(settings, plan.cards, range(plan.adaptation_count), plan.folds)


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


def _blocks(plan: _Plan) -> list[range]:
    """Divide the adaptations into those that are fine-tuned together.

    If a task is probed, the first ones, which a quick run has, are all adapted and probed before
    any is fine-tuned: the probe answers in minutes. Else each adaptation is fine-tuned before the
    next.

    Returns:
        Ranges of indices of adaptations.
    """
    quick_count = min(plan.adaptation_count, QUICK_ADAPTATIONS)
    first = 1
    if any(is_probed(plan.settings, card) for card in plan.cards.values()):
        first = quick_count
    blocks = [range(first)]
    count = quick_count if plan.quick else plan.adaptation_count
    for index in range(first, count):
        blocks.append(range(index, index + 1))
    return blocks


def _cards_to_tune(plan: _Plan) -> dict[str, str]:
    """Return the cards of the tasks that are fine-tuned.

    A quick run fine-tunes what has no probe.
    """
    return {
        task: card
        for task, card in plan.cards.items()
        if not (plan.quick and is_probed(plan.settings, card))
    }


def _adaptation_steps(plan: _Plan, index: int) -> Iterator[Step]:
    """Yield the steps of one adaptation of all arms, up to the probes of their models.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
    """
    settings = with_seed(plan.settings, index)
    arms = plan.arms_with_seed(settings.adapt.seed)
    fold = plan.fold_of(index)
    makers = plan.makers(index)
    if plan.has_own_target(index):
        yield from _target_steps(plan, settings, index, left_out=fold)
    yield from _score_and_weigh_steps(plan, settings, arms, index, fold)
    yield from pilot_steps(settings, arms, plan.cards, index, fold, plan.folds)
    yield from _adapt_steps(settings, arms, index, fold)
    if not plan.cards:
        # Losses are measured with the saved models. pilot_steps has refused the objective auto, for
        # which this could not be told yet.
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


def _look_step(plan: _Plan, index: int, steps_with_results: Sequence[str]) -> Step:
    """Make the step that looks at the results so far, and may stop the run.

    Args:
        plan: What all adaptations have in common.
        index: Index of the newest adaptation.
        steps_with_results: Names of the steps that make the results so far.
    """
    arguments = {
        "out": Path(plan.settings.out),
        "arms": _names_with_base(plan.arms),
        "adaptations": index + 1,
        "horizon": plan.adaptation_count,
    }
    stage = "dana.stages.report:look_stage"
    after = tuple(steps_with_results)
    return Step(f"look/{index}", stage, arguments, after=after, stops=True)


def _finetune_steps(plan: _Plan, index: int) -> Iterator[Step]:
    """Yield the steps that fine-tune each arm's model of one adaptation on each task.

    Args:
        plan: What all adaptations have in common.
        index: Index of the adaptation.
    """
    settings = plan.settings
    seeds = settings.seeds.of_adaptation(index)
    for task, card in _cards_to_tune(plan).items():
        folder = Path(settings.out) / "finetune" / task
        for arm, maker in plan.makers(index).items():
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
    makers = plan.makers(index)
    for method in plan.methods:
        folder = Path(settings.out) / CANDIDATE / method
        for name in [BASE, *(arm.name for arm in arms_of_models(plan.arms_to_run))]:
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


def _target_steps(plan: _Plan, settings: RunSettings, index: int, left_out: int) -> Iterator[Step]:
    """Yield the steps of the target text of one adaptation: reading it, and ranking detectors on it.

    Args:
        plan: What all adaptations have in common.
        settings: Settings of the adaptation.
        index: Index of the adaptation, or :data:`ALL_TEXTS`.
        left_out: Fold whose texts are left out.
    """
    folder = folder_of_adaptation(Path(settings.out), index)
    ending = suffix(index)
    if index != 0:  # the step "texts" has read the target text of the first
        arguments = {"settings": plan.text_settings, "folder": folder / "target", "fold": left_out}
        yield Step(f"texts{ending}", "dana.stages.texts:read_target", arguments, after=("texts",))
    if any(arm.selects and arm.detector == "auto" for arm in plan.arms):
        # A ranking uses only the share of the settings of the weights. The others are left at their
        # defaults, so that a change of one does not make it rank again.
        weigh = WeighSettings(beta=settings.weigh.share)
        ranking = replace(
            plan.text_settings, selection=settings.selection, ranking=settings.ranking, weigh=weigh
        )
        arguments = {"settings": ranking, "fold_folder": folder}
        yield Step(f"rank{ending}", f"{__name__}:rank_texts", arguments, after=(f"texts{ending}",))


def _base_adapt_settings(settings: RunSettings) -> AdaptSettings:
    """Return the adapt settings that the base model depends on, others at their defaults.

    They are those of the head's warm-up; a base from scratch depends on none.
    """
    adapt = settings_before_pilot(settings.adapt)
    names = HEAD_SETTINGS if settings.model else ()
    values = {name: getattr(adapt, name) for name in names}
    return replace(AdaptSettings(), **values)


def _score_and_weigh_steps(
    plan: _Plan, settings: RunSettings, arms: Sequence[Arm], index: int, fold: int
) -> Iterator[Step]:
    """Yield the steps of scores and of weights of one adaptation.

    Arms with equal specs share scores, named after the first of them in the recipe, even if a quick
    run leaves it out.

    Args:
        plan: What all adaptations have in common.
        settings: Settings of the adaptation.
        arms: The arms to run.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    owners: dict[tuple[str, str | None], str] = {}
    for arm in plan.arms:
        if arm.selects:
            owners.setdefault((arm.selector, arm.detector), arm.name)
    score_steps: dict[str, Step] = {}  # by owner
    for arm in arms:
        if not arm.selects:
            continue
        owner = owners[arm.selector, arm.detector]
        if owner not in score_steps:
            score_steps[owner] = _score_step(settings, owner, arm, index, fold)
            yield score_steps[owner]
        yield _weigh_step(plan, arm, score_steps[owner].name, index)


def _score_step(settings: RunSettings, owner: str, arm: Arm, index: int, fold: int) -> Step:
    """Make the step that scores the pool.

    Args:
        settings: Settings of the run.
        owner: Name of the arm that the scores are named after.
        arm: An arm with the same specs.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    out = Path(settings.out)
    folder = folder_of_adaptation(out, index)
    scores = folder / "arms" / owner / "scores"
    # The recipe's own selector shares the folder of dana score, so that neither scores again what
    # the other has scored.
    if arm.selector == settings.selector_spec and arm.detector in ("", settings.detector):
        scores = folder / "scores"
    arguments = {
        "out": out,
        "fold_folder": folder_of_adaptation(out, fold),
        "selector": arm.selector,
        "detector": arm.detector,
        "folder": scores,
        "allowed": settings.allow_below_chance,
        "selection": settings.selection,
    }
    reading_step = "rank" if arm.detector == "auto" else "texts"
    return Step(
        f"score/{owner}{suffix(index)}",
        "dana.stages.score:score_read",
        arguments,
        after=(f"{reading_step}{suffix(fold)}",),
    )


def _weigh_step(plan: _Plan, arm: Arm, score_step: str, index: int) -> Step:
    """Make the step that turns the scores of an arm into weights.

    Args:
        plan: What all adaptations have in common.
        arm: The arm.
        score_step: Name of the step that makes its scores.
        index: Index of the adaptation.

    Raises:
        ConfigError: If the arm balances its budget over a table that is not there.
    """
    out = Path(plan.settings.out)
    arguments = {
        "scores": OutputOf(score_step),
        "pool": out / "pool",
        "settings": arm.weigh,
        "allowed": plan.settings.allow_below_chance,
        "folder": folder_of_adaptation(out, index) / "arms" / arm.name / "weights",
    }
    if arm.weigh and arm.weigh.balance:
        table = parse_balance(arm.weigh.balance).table
        is_made_by_study = any(step.name == table for step in plan.study_steps)
        if is_made_by_study:
            arguments["groups"] = OutputOf(table)
        else:
            # weigh_stage looks for it in the same two places.
            is_there = bool(part_files(out / table) or part_files(Path(table)))
            what = f"a table of groups, in {out} or at a path"
            require(is_there, "balance", arm.weigh.balance, what)
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
        with_gates: Whether there are gates before adaptations. A gate measures on the base what the
            selected text could teach it. Arms with the same selection have one gate; controls have
            none.
    """
    gated: list[tuple[Any, ...]] = []
    for arm in arms:
        if not arm.is_adapted:
            continue
        texts = training_texts(settings, arm, index, fold)
        selection = (arm.selector, arm.detector, arm.weigh)
        takes_gate = with_gates and arm.selects and not is_control(arm.name)
        if takes_gate and selection not in gated:
            gated.append(selection)
            yield _gate_step(settings, arm, texts, index, fold)
        yield _adapt_step(settings, arm, texts, index, fold)


def _gate_step(
    settings: RunSettings, arm: Arm, texts: Mapping[str, Any], index: int, fold: int
) -> Step:
    """Make the step that measures, on the base, what an arm's selected text could teach it.

    Args:
        settings: Settings of the run.
        arm: The arm.
        texts: Result of :func:`dana.stages.pilot_steps.training_texts`.
        index: Index of the adaptation.
        fold: Fold that its target text leaves out.
    """
    arguments: dict[str, Any] = {
        **texts,
        "model": OutputOf(BASE),
        "settings": settings_before_pilot(arm.adapt),
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
        texts: Result of :func:`dana.stages.pilot_steps.training_texts`.
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
        arguments["pilot"] = OutputOf(pilot_name(settings, arm, index))
    if settings_before_pilot(arm.adapt).make_objective().cuts_sentences:
        arguments["language"] = settings.selection.language
    return _step_of_arm("adapt", stage, arguments, arm, index, fold)


def _step_of_arm(
    verb: str, stage: str, arguments: dict[str, Any], arm: Arm, index: int, fold: int
) -> Step:
    """Make the step ``VERB/ARM[/ADAPTATION]``, which waits until the target text of a fold is read."""
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
    """Hold out text of the pool, prepare the model that the arms adapt, and tokenise the pool for it.

    All arms share these three, so they are made once.

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
