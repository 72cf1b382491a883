"""The fine-tuned model to save: of all seeds, the one with the best development score."""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model

from dana.core.artifacts import Draft, canonical, make, read_manifest, write_text
from dana.core.errors import ArtifactError
from dana.core.locks import locked
from dana.core.logging import get_logger
from dana.core.seals import flaws
from dana.finetuning.encoded import Encoded
from dana.finetuning.results import SeedResult, scores_of
from dana.finetuning.saved import save_classifier
from dana.finetuning.seeds import refuse_others
from dana.models.classifier import Classifier
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example

log = get_logger(__name__)

KIND = "classifier"
WEIGHTS = "weights.safetensors"
PROBE = 8  # test examples on which a written model must agree with the trained one

CARD = """---
library_name: transformers
pipeline_tag: {pipeline}
tags: [dana]
---

# {model}, fine-tuned on {task} by dana

{title}

| | |
|---|---|
| base | {model} |
| task | {task}, version {version} |
| labels | {labels} |
| seed | {seed}: the best of its run on the development data, after epoch {epoch} |
| {metric} | {dev:.4f} on the development data, {test:.4f} on the test data |
| longest text | {most} tokens |

Mean and deviation over seeds are in the run's `metrics.json`; this is one seed of it, chosen on the development data.

{how}{pairs}

Everything it was made from is in `__dana__/manifest.json`.
"""
ALONE = """It opens with `{auto}.from_pretrained`, or with `pipeline("{pipeline}")`
(give `truncation=True` for texts longer than {most} tokens), and `dana predict FOLDER FILE` labels text with it."""
PAIRS = """ It reads pairs of texts: `tokenizer(text, text_pair)`, or
`pipeline(...)({"text": ..., "text_pair": ...})`."""
PARTS = """Transformers has no head like this one for {kind} models, so the folder holds the parts: `backbone/`, which
`AutoModel` opens, and `head.safetensors`. Label text with `dana predict FOLDER FILE`, or open it in Python with
`dana.finetuning.saved.open_classifier(FOLDER)`."""


@dataclass(frozen=True)
class Kept:
    """Where the models of one fine-tuning lie.

    Attributes:
        target: Where the best one ends, ``OUT-model``.
        folder: Where the best so far waits while seeds are run, ``OUT-seeds``.
        depends_on: What every seed is made from.
        seeds: Those that are run, in order.
        sign: 1 where a higher development score is better, -1 where a lower one is.
    """

    target: Path
    folder: Path
    depends_on: dict[str, Any]
    seeds: list[int]
    sign: int = 1

    def check(self) -> None:
        """Refuse, before any work, a place that holds something else.

        Raises:
            ArtifactError: Naming the difference.
        """
        manifest = read_manifest(self.target)
        if not manifest and self.target.exists() and any(self.target.iterdir()):
            raise ArtifactError(f"{self.target}: not empty and not made by dana; move it away or choose another --out")
        if manifest:
            there = manifest["depends_on"]
            refuse_others(self.target, there, self._of(there.get("seed")))

    def keep(self, result: SeedResult, classifier: Classifier) -> None:
        """Keep a seed's weights until all have run, unless a better seed's wait; worse ones go.

        Processes do this side by side: the best of all is never removed, because there is none better.

        Args:
            result: What the seed gave.
            classifier: As it was tested.
        """
        shutil.rmtree(self._waiting(result.seed), ignore_errors=True)  # the seed was run before, but not finished
        own = self._rank(result.seed, result.dev_score)
        if any(rank > own for rank in self._ranks().values()):
            return

        def write(draft: Draft) -> None:
            save_model(classifier, str(draft.path / WEIGHTS))
            draft.notes["dev_score"] = result.dev_score

        make(self._waiting(result.seed), "trained", self._of(result.seed), write)
        for seed, rank in self._ranks().items():
            if rank < own:
                with locked(self._waiting(seed)):  # whoever made it looks at it once more before it lets go
                    shutil.rmtree(self._waiting(seed), ignore_errors=True)

    def restore(self, seed: int, classifier: Classifier) -> bool:
        """Put a seed's weights into a classifier; returns whether they were kept, whole."""
        place = self._waiting(seed)
        with suppress(ArtifactError):
            manifest = read_manifest(place)
            if manifest.get("depends_on") == self._of(seed) and not any(flaws(place, manifest["files"], digests=True)):
                load_model(classifier, place / WEIGHTS)
                return True
        return False

    def commit(self, seed: int, write: Callable[[Draft], None]) -> None:
        """Put a seed's model where it belongs, in the place of a worse one of the same fine-tuning.

        Args:
            seed: The best one.
            write: Fills a draft with its model.
        """
        there = read_manifest(self.target).get("depends_on", {}).get("seed", seed)
        if there != seed:
            log.info("model     seed %d is better than seed %d, which was kept before", seed, there)
            self.folder.mkdir(parents=True, exist_ok=True)
            self.target.rename(self.folder / ".worse")
        make(self.target, KIND, self._of(seed), write)

    def _waiting(self, seed: int) -> Path:
        return self.folder / f"model-{seed}"

    def _ranks(self) -> dict[int, tuple[float, int]]:
        """The seeds whose models wait, and their ranks."""
        found = {}
        for seed in self.seeds:
            with suppress(ArtifactError):  # another process is just removing it
                manifest = read_manifest(self._waiting(seed))
                if manifest.get("depends_on") == self._of(seed):
                    found[seed] = self._rank(seed, manifest["dev_score"])
        return found

    def _rank(self, seed: int, dev_score: float) -> tuple[float, int]:
        """The larger the better; of equal scores the earlier seed."""
        return self.sign * dev_score, -self.seeds.index(seed)

    def _of(self, seed: int | None) -> dict[str, Any]:
        return json.loads(canonical({**self.depends_on, "seed": seed}))  # as it is read back


def write_model(
    draft: Draft,
    classifier: Classifier,
    result: SeedResult,
    card: TaskCard,
    tokenizer: Any,
    test: Sequence[Example],
    base: str,
) -> None:
    """Fill a draft with a model, its tokenizer and its card.

    Args:
        draft: Of the artifact.
        classifier: As it was tested.
        result: What its seed gave.
        card: The task.
        tokenizer: Its tokenizer, with the ``model_max_length`` it was trained with.
        test: The test examples.
        base: Name of the checkpoint it was made from.
    """
    classifier.to("cpu")
    most, architecture = tokenizer.model_max_length, classifier.backbone.config.model_type
    some = Encoded.of(list(test[:PROBE]), tokenizer, most)
    probe = some.batch(np.arange(len(some.tokens)), torch.device("cpu"))
    alone = save_classifier(classifier, tokenizer, card.target, probe, draft.path)
    scores, _ = scores_of(result, card.target, test)
    if not alone:
        log.info("model     %s models have no head like ours in transformers; open it with dana predict", architecture)
    auto = "AutoModelForTokenClassification" if card.target.per_word else "AutoModelForSequenceClassification"
    named = {"pipeline": card.target.pipeline, "auto": auto}
    text = CARD.format(
        pipeline=card.target.pipeline,
        model=base,
        task=card.name,
        title=card.title,
        version=card.version,
        labels=", ".join(card.target.outputs),
        seed=result.seed,
        epoch=result.epoch,
        metric=card.metric,
        dev=result.dev_score,
        test=scores[card.metric],
        most=most,
        how=(ALONE if alone else PARTS).format(most=most, kind=architecture, **named),
        pairs=PAIRS if card.text_pair else "",
    )
    write_text(draft.path / "README.md", text)
    draft.seeds["seed"] = result.seed
    draft.notes |= {"text_field": card.text, "id_field": card.id, "opens_with": "transformers" if alone else "dana"}
    optional = {"text_pair_field": card.text_pair, "template": card.template}
    draft.notes |= {name: value for name, value in optional.items() if value is not None}
