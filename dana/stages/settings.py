"""The settings of a whole run, one section a step: what a recipe's YAML holds and every command's flags fill in."""

from dataclasses import dataclass, field

from dana.config import require
from dana.stages.adapt import AdaptSettings
from dana.stages.finetune import FinetuneSettings
from dana.stages.harvest import HarvestSettings
from dana.stages.hygiene import Hygiene
from dana.stages.pretrain import PretrainSettings
from dana.stages.rank import RankSettings
from dana.stages.selection import Selection
from dana.stages.weigh import WeighSettings

ARMS = ("general", "random", "dana")


@dataclass(frozen=True)
class RunSettings:
    """From two piles of text to a table that says whether adaptation helped.

    Attributes:
        out: Folder of the run.
        task: A card's name, a card's YAML file, or text: a file, glob or folder.
        general: Files, globs, folders, or ``hf:name[:config][:split]``.
        data: Folder that holds a card's data, where it is not under ``DANA_DATA``.
        on_bad_record: ``fail`` or ``skip`` (counted).
        hygiene: What is kept away from training: text of evaluation splits, near duplicates.
        harvest: Take task and general text from the installed Python distributions instead.
        selection: How text is cut, embedded and placed.
        ranking: How the zoo is ranked.
        selector: ``detector`` or another selector's spec.
        detector: A detector's spec, or ``auto``: the one with the best F1.
        weigh: How scores become weights.
        model: The checkpoint to adapt, a folder or a Hub name; empty trains one from scratch.
        size: Size of a base from scratch: tiny, mini, small, medium or base.
        pretrain: Training of a base from scratch.
        adapt: Continued pretraining, the same for every arm.
        arms: What is compared with the base: general, random, dana.
        cards: Task cards to fine-tune on; empty takes `task`.
        finetune: The fine-tuning, the same for every arm.
    """

    out: str = "runs/run"
    task: str = ""
    general: list[str] = field(default_factory=list)
    data: str | None = None
    on_bad_record: str = "fail"
    hygiene: Hygiene = field(default_factory=Hygiene)
    harvest: HarvestSettings | None = None
    selection: Selection = field(default_factory=Selection)
    ranking: RankSettings = field(default_factory=RankSettings)
    selector: str = "detector"
    detector: str = "auto"
    weigh: WeighSettings = field(default_factory=WeighSettings)
    model: str | None = None
    size: str = "tiny"
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    adapt: AdaptSettings = field(default_factory=AdaptSettings)
    arms: list[str] = field(default_factory=lambda: list(ARMS))
    cards: list[str] = field(default_factory=list)
    finetune: FinetuneSettings = field(default_factory=FinetuneSettings)

    def __post_init__(self) -> None:
        require(self.on_bad_record in ("fail", "skip"), "on_bad_record", self.on_bad_record, "fail or skip")
        for arm in self.arms:
            require(arm in ARMS, "arms", arm, f"among {', '.join(ARMS)}")
        require(len(set(self.arms)) == len(self.arms), "arms", self.arms, "distinct")
