"""Settings of the translation study."""

import re
from dataclasses import dataclass, field

from dana.core.config import check_fields, require
from dana.core.files import slug

ALL, ORACLE = "all", "oracle"


@dataclass(frozen=True)
class TranslationSettings:
    """Text, selections, size of the translators, and their training.

    Attributes:
        train: Training text of each domain by name: two plain-text files aligned line by line, or
            one file with both sides.
        test: Test text of each domain, likewise.
        dev: Development text of each domain, likewise; of a domain without, the first pairs of its
            training text by hash.
        held_out: Pairs of development text to take from the training text.
        sides: Names of the source and of the target; language codes such as de and en are checked
            by their script.
        catalogues: Domain whose training text gets the message catalogues of this machine; empty
            for none.
        longest: Most words of a side of a training pair.
        selectors: Specs of selectors that choose text for a domain from the training text of all;
            ``oracle`` takes the domain's own.
        targets: Domains to choose text for; empty for all.
        share: Tokens to choose, as a share of those of all domains.
        layers: Layers of the encoder, and of the decoder.
        width: Width of a hidden state.
        vocabulary: Pieces of the vocabulary, which both languages and all translators share.
        dropout: Dropout of every layer, of attention and of activations.
        smoothing: Label smoothing.
        max_tokens: Most tokens of a pair; longer pairs are not trained on.
        batch_tokens: Tokens of an optimizer step, both sides together.
        micro_batch_tokens: Most tokens in one forward pass.
        learning_rate: Peak learning rate.
        warmup_steps: Steps with a rising rate; it then falls by the inverse square root of the
            step.
        epochs: Most passes over the text.
        patience: Passes without a better BLEU on development text after which training stops.
        dev_pairs: Most pairs of development text to translate after a pass, by greedy search.
        beams: Beams of the search on test text.
        test_pairs: Most pairs of test text of a domain; None for all.
        seed: Seed of new weights, order and dropout.
    """

    train: dict[str, list[str]] = field(default_factory=dict)
    test: dict[str, list[str]] = field(default_factory=dict)
    dev: dict[str, list[str]] = field(default_factory=dict)
    held_out: int = 500
    sides: list[str] = field(default_factory=lambda: ["de", "en"])
    catalogues: str = ""
    longest: int = 100
    selectors: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    share: float = 0.25
    layers: int = 3
    width: int = 256
    vocabulary: int = 8000
    dropout: float = 0.1
    smoothing: float = 0.1
    max_tokens: int = 256
    batch_tokens: int = 4096
    micro_batch_tokens: int = 4096
    learning_rate: float = 1e-3
    warmup_steps: int = 400
    epochs: int = 10
    patience: int = 3
    dev_pairs: int = 200
    beams: int = 5
    test_pairs: int | None = None
    seed: int = 17

    def __post_init__(self) -> None:
        names = (
            "held_out",
            "longest",
            "layers",
            "warmup_steps",
            "epochs",
            "patience",
            "dev_pairs",
            "beams",
        )
        check_fields(self, **dict.fromkeys(names, "at least 1"), test_pairs="at least 1, or null")
        check_fields(
            self,
            share="in (0, 1]",
            dropout="in [0, 1)",
            smoothing="in [0, 1)",
            learning_rate="above 0",
        )
        check_fields(self, max_tokens="from 4 to 1024", vocabulary="from 300 to 1000000")
        for name in ("batch_tokens", "micro_batch_tokens"):
            value = getattr(self, name)
            require(value >= self.max_tokens, name, value, f"at least max_tokens={self.max_tokens}")
        require(self.width >= 64 and self.width % 64 == 0, "width", self.width, "a multiple of 64")
        require(
            len({*self.sides}) == len(self.sides) == 2, "sides", self.sides, "two different names"
        )
        for split in ("train", "dev", "test"):
            for name, files in getattr(self, split).items():
                fits = bool(re.fullmatch(r"[^\W_][\w+-]*", name)) and name != ALL
                require(
                    fits,
                    split,
                    name,
                    f"names of letters, digits, _, + and - (of folders), not {ALL}",
                )
                require(len(files) in (1, 2), f"{split}.{name}", files, "one or two files")
        translators = [name for name, *_ in self.translators]
        twice = sorted({name for name in translators if translators.count(name) > 1})
        require(
            not twice,
            "selectors",
            self.selectors,
            f"without two translators that are called {twice}",
        )

    @property
    def domains(self) -> list[str]:
        """Names of the domains with training text, sorted."""
        return sorted({*self.train, *([self.catalogues] if self.catalogues else [])})

    @property
    def translators(self) -> list[tuple[str, str, str]]:
        """Name, target and selector of each translator; of one on a domain or on all, no selector."""
        arms = [(one, spec) for one in self.targets or self.domains for spec in self.selectors]
        by_domain = [(name, name, "") for name in [*self.domains, ALL]]
        return [*by_domain, *((f"{one}-{slug(spec)}", one, spec) for one, spec in arms)]
