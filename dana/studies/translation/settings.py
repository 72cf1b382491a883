"""Settings of the translation study."""

import re
from dataclasses import field
from typing import Annotated

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.files import slug
from dana.core.settings import Count, Int, Positive, Rate, Share, settings_model

ALL = "all"
ORACLE = "oracle"


@settings_model
class TranslationSettings:
    """Text, selections, size of the translators, and their training."""

    train: dict[str, list[str]] = field(default_factory=dict)
    """Training text of each domain by name: two plain-text files aligned line by line, or one file
    with both sides."""
    test: dict[str, list[str]] = field(default_factory=dict)
    """Test text of each domain, likewise."""
    dev: dict[str, list[str]] = field(default_factory=dict)
    """Development text of each domain, likewise; of a domain without, the first pairs of its
    training text by hash."""
    held_out: Count = 500
    """Pairs of development text to take from the training text."""
    sides: list[str] = field(default_factory=lambda: ["de", "en"])
    """Names of the source and of the target; language codes such as de and en are checked by their
    script."""
    longest: Count = 100
    """Most words of a side of a training pair."""
    selectors: list[str] = field(default_factory=list)
    """Specs of selectors that choose text for a domain from the training text of all; oracle takes
    the domain's own."""
    targets: list[str] = field(default_factory=list)
    """Domains to choose text for; empty for all."""
    share: Share = 0.25
    """Tokens to choose, as a share of those of all domains."""
    layers: Count = 3
    """Layers of the encoder, and of the decoder."""
    width: Int = 256
    """Width of a hidden state."""
    vocabulary: Annotated[Int, Field(ge=300, le=1_000_000)] = 8000
    """Pieces of the vocabulary, which both languages and all translators share."""
    dropout: Rate = 0.1
    """Dropout of every layer, of attention and of activations."""
    smoothing: Rate = 0.1
    """Label smoothing."""
    max_tokens: Annotated[Int, Field(ge=4, le=1024)] = 256
    """Most tokens of a pair; longer pairs are not trained on."""
    batch_tokens: Int = 4096
    """Tokens of an optimizer step, both sides together."""
    micro_batch_tokens: Int = 4096
    """Most tokens in one forward pass."""
    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    warmup_steps: Count = 400
    """Steps with a rising rate; it then falls by the inverse square root of the step."""
    epochs: Count = 10
    """Most passes over the text."""
    patience: Count = 3
    """Passes without a better BLEU on development text after which training stops."""
    dev_pairs: Count = 200
    """Most pairs of development text to translate after a pass, by greedy search."""
    beams: Count = 5
    """Beams of the search on test text."""
    test_pairs: Count | None = None
    """Most pairs of test text of a domain; None for all."""
    seed: Int = 17
    """Seed of new weights, order and dropout."""

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "micro_batch_tokens"):
            value = getattr(self, name)
            if value < self.max_tokens:
                raise SettingError(name, value, f"at least max_tokens={self.max_tokens}")
        if self.width < 64 or self.width % 64:
            raise SettingError("width", self.width, "a multiple of 64")
        if len(self.sides) != 2 or self.sides[0] == self.sides[1]:
            raise SettingError("sides", self.sides, "two different names")
        self._check_domains()
        translators = [name for name, *_ in self.translators]
        twice = sorted({name for name in translators if translators.count(name) > 1})
        if twice:
            remedy = f"without two translators that are called {twice}"
            raise SettingError("selectors", self.selectors, remedy)

    def _check_domains(self) -> None:
        form = f"names of letters, digits, _, + and - (of folders), not {ALL}"
        for split in ("train", "dev", "test"):
            for name, files in getattr(self, split).items():
                if not re.fullmatch(r"[^\W_][\w+-]*", name) or name == ALL:
                    raise SettingError(split, name, form)
                if len(files) not in (1, 2):
                    raise SettingError(f"{split}.{name}", files, "one or two files")

    @property
    def domains(self) -> list[str]:
        """Names of the domains with training text, sorted."""
        return sorted(self.train)

    @property
    def translators(self) -> list[tuple[str, str, str]]:
        """Name, target and selector of each translator; "" for one without a selector."""
        translators = [(name, name, "") for name in [*self.domains, ALL]]
        for domain in self.targets or self.domains:
            for spec in self.selectors:
                translators.append((f"{domain}-{slug(spec)}", domain, spec))
        return translators
