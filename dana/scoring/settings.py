"""Settings of scoring (units, encoder, geometry, seed) and of ranking (protocol, folds)."""

from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dana.core.errors import ConfigError, PluginError, SettingError
from dana.core.registry import DETECTORS, ENCODERS
from dana.core.settings import Count, Float, Int, OneOf, settings_model
from dana.core.storage import is_url
from dana.corpus.units import Splitter, has_rules, parse_units

if TYPE_CHECKING:
    from dana.selectors.base import SelectorContext

PROTOCOLS = ("grouped", "paper")
ALL = ["all"]
LEFT_OUT = ("pyod",)  # not in ``all``: needs an argument


@settings_model
class Selection:
    """How text is cut and embedded."""

    units: str = "sentence"
    """sentence or window:N word-pieces of the encoder's tokenizer."""
    language: str = "en"
    """ISO 639-1 code of the text, for where its sentences end."""
    encoder: str = "static"
    """Encoder spec, for example static, minilm or transformer:bert-base-uncased."""
    geometry: str = "center+l2"
    """none, l2, center+l2 or whiten:K (docs/design.md, Geometry)."""
    max_target_units: Count = 4000
    """Fit on at most so many target units, drawn at random; fitting kNN, LOF and one-class SVM
    grows with them, and beyond some thousand the scores hardly change."""
    min_words: Annotated[Int, Field(ge=0)] = 2
    """A unit with fewer words (page number, separator, heading of one word) gets the largest score
    of the table, and counts neither in mean and deviation nor in a segment's mean. The papers have
    no such rule: 0."""
    pool_share: Annotated[Float, Field(ge=0, le=1)] = 0.0
    """Pool units that a detector is fitted on along with the task, as a share of its units: none
    by default, a tenth in Algorithm 1 of the paper."""
    seed: Int = 0
    """Root seed of every split, sample and detector."""
    store: str | None = None
    """Folder of the cache of embeddings, shared by tasks and corpora; by default OUT/embeddings,
    without a cache for none."""
    store_dtype: str = "float16"
    """Precision of the cache, float16 or int8."""

    def __post_init__(self) -> None:
        if self.store is not None and (is_url(self.store) or Path(self.store).is_file()):
            raise SettingError("store", self.store, "a local folder; it need not exist")
        self.context("")  # checks the settings of all selectors
        parse_units(self.units)
        has_rules(self.language)

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint, without the store's path.

        The caller adds the encoder.
        """
        left_out = {"store", "min_words"}
        if not self.store:
            left_out.add("store_dtype")
        if parse_units(self.units).needs_tokenizer:
            left_out.add("language")  # windows ignore sentence ends
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def cut(self) -> dict[str, Any]:
        """Return what decides the units and which are short.

        The rest is in the selector's identity.
        """
        cutter = "encoder" if parse_units(self.units).needs_tokenizer else "language"
        names = ("units", cutter, "max_target_units", "seed", "min_words")
        return {name: getattr(self, name) for name in names}

    def context(self, detector: str) -> "SelectorContext":
        """Create the context of a selector; `detector` is a spec."""
        from dana.selectors.base import SelectorContext

        return SelectorContext(
            detector,
            self.encoder,
            self.geometry,
            self.pool_share,
            self.store,
            self.store_dtype,
        )

    def splitter(self) -> Splitter:
        """Return a function that cuts a text into the character spans of its units.

        For windows the tokenizer is loaded.
        """
        spec = parse_units(self.units)
        tokenizer = None
        if spec.needs_tokenizer:
            tokenizer = getattr(ENCODERS.create(self.encoder), "tokenizer", None)
        return spec.splitter(tokenizer, self.language)


@settings_model
class RankSettings:
    """How the detectors are compared."""

    detectors: Annotated[list[str], Field(min_length=1)] = field(default_factory=lambda: list(ALL))
    """Detector specs; all is every built-in and plug-in that needs no argument. With all a detector
    that fails is skipped with a warning; a detector that was named is an error."""
    protocol: Annotated[str, OneOf(PROTOCOLS)] = "grouped"
    """grouped holds out documents with their near duplicates, in folds, and chooses by recall at
    the budget. paper holds out a tenth of the units, by unit, and chooses by F1 (DANA, section
    3.1)."""
    folds: Annotated[Int, Field(ge=2)] = 5
    """Folds of grouped."""
    seeds: Count = 1
    """Repetitions, each with its own split and detector seed."""
    prevalence: Annotated[Float, Field(gt=0, lt=1)] = 0.1
    """Share of target text at which the average precision is taken; the paper's is a half."""

    @property
    def is_all(self) -> bool:
        """Whether all detectors are ranked."""
        return self.detectors == ALL

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint. The caller adds the detectors."""
        left_out = ["detectors"]
        if self.protocol != "grouped":
            left_out.append("folds")
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def specs(self) -> list[str]:
        """Return the specs of the detectors; of ``all``, those that load.

        Unknown names are an error.
        """
        if self.is_all:
            return [spec for spec, problem in _zoo().items() if not problem]
        for spec in self.detectors:
            DETECTORS.create(spec)
        if len(set(self.detectors)) < len(self.detectors):
            raise ConfigError(f"detectors={','.join(self.detectors)}: each name may appear once")
        return self.detectors

    def broken(self) -> dict[str, str]:
        """Return the detectors of ``all`` that do not load, with the error of each."""
        if not self.is_all:
            return {}
        return {spec: problem for spec, problem in _zoo().items() if problem}


def _zoo() -> dict[str, str]:
    """Load every detector that needs no argument; return its error, empty if it loads, by spec.

    A name that two packages register appears once per package.
    """
    problems = {}
    for name, claims in DETECTORS.entries().items():
        if name in LEFT_OUT:
            continue
        specs = [name]
        if len(claims) > 1:
            specs = [f"{claim.dist.name}:{name}" for claim in claims if claim.dist]
        for spec in specs:
            try:
                DETECTORS.create(spec)
                problems[spec] = ""
            except (PluginError, ConfigError) as error:
                problems[spec] = str(error)
    return problems
