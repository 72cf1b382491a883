"""Settings of scoring (units, encoder, geometry, seed) and of ranking detectors (protocol, folds)."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import check_fields, require
from dana.core.errors import ConfigError, PluginError
from dana.core.registry import DETECTORS, ENCODERS
from dana.core.storage import is_url
from dana.corpus.units import Splitter, has_rules, parse_units

if TYPE_CHECKING:
    from dana.selectors.base import SelectorContext

PROTOCOLS = ("grouped", "paper")
ALL = ["all"]
LEFT_OUT = ("pyod",)  # not in ``all``: needs an argument


@dataclass(frozen=True)
class Selection:
    """How text is cut and embedded.

    Attributes:
        units: ``sentence`` or ``window:N`` word-pieces of the encoder's tokenizer.
        language: ISO 639-1 code of the text, for where its sentences end.
        encoder: Encoder spec, for example ``static``, ``minilm`` or
            ``transformer:bert-base-uncased``.
        geometry: ``none``, ``l2``, ``center+l2`` or ``whiten:K`` (docs/design.md, Geometry).
        max_task_units: Fit on at most so many task units, drawn at random; fitting kNN, LOF and
            one-class SVM grows with them, and beyond some thousand the scores hardly change.
        general_share: General units that a detector is fitted on along with the task, as a share of
            its units: none by default, a tenth in Algorithm 1 of the paper.
        seed: Root seed of every split, sample and detector.
        store: Folder of the cache of embeddings, shared by tasks and corpora; by default
            OUT/embeddings, without a cache for ``none``.
        store_dtype: Precision of the cache, ``float16`` or ``int8``.
    """

    units: str = "sentence"
    language: str = "en"
    encoder: str = "static"
    geometry: str = "center+l2"
    max_task_units: int = 4000
    general_share: float = 0.0
    seed: int = 0
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        local = not is_url(self.store or "") and not Path(self.store or "").is_file()
        require(local, "store", self.store, "a local folder; it need not exist")
        check_fields(self, max_task_units="at least 1")
        self.context("")  # checks the settings of all selectors
        parse_units(self.units)
        has_rules(self.language)

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint, without the store's path. The caller adds the encoder."""
        left_out = {"store"} if self.store else {"store", "store_dtype"}
        if parse_units(self.units).needs_tokenizer:
            left_out.add("language")  # windows ignore sentence ends
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def cut(self) -> dict[str, Any]:
        """Return the part of :meth:`identity` that decides the units. The rest is in the selector's identity."""
        cutter = "encoder" if parse_units(self.units).needs_tokenizer else "language"
        return {name: getattr(self, name) for name in ("units", cutter, "max_task_units", "seed")}

    def context(self, detector: str) -> "SelectorContext":
        """Create the context of a selector; `detector` is a spec."""
        from dana.selectors.base import SelectorContext

        settings = (self.encoder, self.geometry, self.general_share, self.store, self.store_dtype)
        return SelectorContext(detector, *settings)

    def splitter(self) -> Splitter:
        """Return a function that cuts a text into the character spans of its units. Windows load the tokenizer."""
        spec = parse_units(self.units)
        tokenizer = (
            getattr(ENCODERS.create(self.encoder), "tokenizer", None)
            if spec.needs_tokenizer
            else None
        )
        return spec.splitter(tokenizer, self.language)


@dataclass(frozen=True)
class RankSettings:
    """How the detectors are compared.

    Attributes:
        detectors: Detector specs; ``all`` is every built-in and plug-in that needs no argument.
            With ``all`` a detector that fails is skipped with a warning; a detector that was named
            is an error.
        protocol: ``grouped`` holds out documents with their near duplicates, in folds, and chooses
            by recall at the budget. ``paper`` holds out a tenth of the units, by unit, and chooses
            by F1 (DANA, section 3.1).
        folds: Folds of ``grouped``.
        seeds: Repetitions, each with its own split and detector seed.
        prevalence: Share of task text at which the average precision is taken; the paper's is a
            half.
    """

    detectors: list[str] = field(default_factory=lambda: list(ALL))
    protocol: str = "grouped"
    folds: int = 5
    seeds: int = 1
    prevalence: float = 0.1

    def __post_init__(self) -> None:
        check_fields(
            self, protocol=PROTOCOLS, folds="at least 2", seeds="at least 1", prevalence="in (0, 1)"
        )
        require(bool(self.detectors), "detectors", self.detectors, "all, or at least one name")

    @property
    def is_all(self) -> bool:
        """Whether all detectors are ranked."""
        return self.detectors == ALL

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint. The caller adds the detectors."""
        left_out = ("detectors",) if self.protocol == "grouped" else ("detectors", "folds")
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def specs(self) -> list[str]:
        """Return the specs of the detectors; of ``all``, those that load. Unknown names are an error."""
        if self.is_all:
            return [spec for spec, problem in _zoo().items() if not problem]
        for spec in self.detectors:
            DETECTORS.create(spec)
        if len(set(self.detectors)) < len(self.detectors):
            raise ConfigError(f"detectors={','.join(self.detectors)}: each name may appear once")
        return self.detectors

    def broken(self) -> dict[str, str]:
        """Return the detectors of ``all`` that do not load, with the error of each."""
        return {spec: problem for spec, problem in _zoo().items() if problem} if self.is_all else {}


def _zoo() -> dict[str, str]:
    """Load every detector that needs no argument; return its error, empty if it loads, by spec.

    A name that two packages register appears once per package.
    """
    problems = {}
    for name, claims in DETECTORS.entries().items():
        specs = (
            [name]
            if len(claims) == 1
            else [f"{claim.dist.name}:{name}" for claim in claims if claim.dist]
        )
        for spec in specs if name not in LEFT_OUT else ():
            try:
                DETECTORS.create(spec)
                problems[spec] = ""
            except (PluginError, ConfigError) as error:
                problems[spec] = str(error)
    return problems
