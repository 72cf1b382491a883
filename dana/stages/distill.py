"""``dana distill``: fit a static model to a teacher on selected text; settings of a training by a teacher."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.config import parse_yaml, require
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.logging import get_logger
from dana.core.schemas import FINAL
from dana.encoders.transformer import TransformerEncoder
from dana.models.embeddings import token_range
from dana.models.encoder_folder import save_static_encoder
from dana.models.folder import licence_line, load_own_tokenizer, model_identity, model_name
from dana.stages.training import TrainingData, check_weights
from dana.train.documents import FEWEST_SENTENCES, Documents
from dana.train.objectives.distill import TEACHER_TOKENS, Distill
from dana.train.settings import AdaptSettings
from dana.train.static_student import (
    MOST_SENTENCES,
    PENALTY,
    TaughtSentences,
    fit_token_vectors,
    teach,
)

log = get_logger(__name__)

VERSION = 2  # of what is written for given inputs
CARD = """\
---
{licence}library_name: sentence-transformers
pipeline_tag: sentence-similarity
---

# A static model of {teacher}, by dana

Each token has a vector of its own, and a text the mean of its tokens' vectors: no transformer runs. The
vectors are fitted to those that {teacher} gives to {sentences:,} sentences (ridge regression, penalty {penalty:g}).

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer({folder!r}, device="cpu").encode(texts)
```

Mean cosine with the teacher's vectors on held-out sentences: {cosines}.
The order of words does not count, and a word that the text did not have says nothing.
"""


def find_weights(run: Path) -> Path:
    """Return the folder with the weights of the text that a run selected.

    ``dana weigh`` writes ``weights``. ``dana run`` has weights of each arm: those of the arm ``dana`` by
    all labelled texts, if they are there, else those of its first adaptation.

    Raises:
        ArtifactError: If the run has none.
    """
    places = [
        run / "weights",
        run / FINAL / "arms" / "dana" / "weights",
        run / "arms" / "dana" / "weights",
    ]
    for place in places:
        if place.is_dir():
            return place
    listed = ", ".join(str(place) for place in places)
    raise ArtifactError(f"{run}: no weights (looked for {listed}); name them by --weights")


def taught_settings(settings: AdaptSettings, teacher: str, given: Collection[str]) -> AdaptSettings:
    """Return settings of a training by a teacher: those of a run, without what belongs to its objective.

    Args:
        settings: Settings of the run.
        teacher: The teacher.
        given: Full names of the settings that were given beside the run's.

    Raises:
        ConfigError: If the name of the teacher has a comma, which separates parameters.
    """
    require("," not in teacher, "TEACHER", teacher, "a folder or name without a comma")
    value = teacher
    if not _is_plain_text(teacher):
        value = json.dumps(teacher, ensure_ascii=False)  # YAML reads a text of JSON as that text
    rate = settings.learning_rate if "adapt.learning_rate" in given else None
    return replace(
        settings,
        objective=f"distill:teacher={value}",
        learning_rate=rate,
        batch_size=None,
        batch_tokens=None,
        mix={},
        phases=[],
        adapter=None,
        vocabulary=0,
    )


def _is_plain_text(name: str) -> bool:
    """Return whether YAML reads a name as it is, and not as a number, a truth value or a comment."""
    try:
        return bool(parse_yaml(name, "TEACHER") == name)
    except ConfigError:
        return False


def static_stage(teacher: str, data: TrainingData, out: Path, seed: int = 0) -> Artifact:
    """Fit a static model to a teacher on weighted text, and write it as sentence-transformers opens it.

    The manifest has the notes ``cosine``, the mean cosine of both models' vectors on the sentences of
    held-out target and pool documents; null where a text has none.

    Args:
        teacher: Folder or name of an encoder, which pools as its files say.
        data: Pool, weights and held-out text.
        out: Folder for the model.
        seed: Decides which sentences are read, of more than :data:`MOST_SENTENCES`.

    Raises:
        ConfigError: If the teacher is missing or a decoder.
        DataError: If no document with a weight has sentences enough.
        ArtifactError: If an input is missing, or `out` holds something else.
    """
    objective = Distill(teacher=teacher, sentences=0)
    objective.check_inputs()
    if data.weights is not None:
        check_weights(data.weights, objective, "distill")
    data.input_fingerprints()
    data.hold_out()
    depends_on = {
        "teacher": model_identity(teacher),
        **data.identity(),
        "language": data.language,
        "seed": seed,
        "penalty": PENALTY,
        "most_sentences": MOST_SENTENCES,
        "version": VERSION,
    }

    def write(draft: Draft) -> None:
        tokenizer = load_own_tokenizer(teacher)
        encoder = TransformerEncoder.of_checkpoint(teacher, TEACHER_TOKENS)
        make_documents = partial(
            objective.examples, tokenizer=tokenizer, max_tokens=TEACHER_TOKENS, seed=seed
        )
        documents, draft.counts = data.examples(tokenizer, make_documents)
        assert isinstance(documents, Documents)  # as of every objective that reads sentences
        sentences = teach(documents, tokenizer, encoder.encode, seed)
        vectors = fit_token_vectors(sentences, token_range(tokenizer))
        held_out = _held_out_sentences(data, objective, tokenizer, encoder)
        cosines = {
            name: None if texts is None else round(texts.cosine(vectors), 4)
            for name, texts in held_out.items()
        }
        words = cosine_text(cosines)
        log.info(
            "static    fitted to %s sentences; cosine: %s", f"{len(sentences.tokens):,}", words
        )
        save_static_encoder(vectors, tokenizer, draft.path)
        card = CARD.format(
            licence=licence_line(teacher),
            teacher=model_name(teacher),
            sentences=len(sentences.tokens),
            penalty=PENALTY,
            folder=str(out),
            cosines=words,
        )
        write_text(draft.path / "README.md", card)
        draft.counts["sentences_read"] = len(sentences.tokens)
        draft.notes["cosine"] = cosines

    return make(out, "static_model", depends_on, write)


def cosine_text(cosines: Mapping[str, float | None]) -> str:
    """Write the note ``cosine`` of :func:`static_stage` in words."""
    parts = []
    for name, cosine in cosines.items():
        found = f"not measured, no document has {FEWEST_SENTENCES} sentences"
        if cosine is not None:
            found = f"{cosine:.3f}"
        parts.append(f"{name} text {found}")
    return "; ".join(parts)


def _held_out_sentences(
    data: TrainingData, objective: Distill, tokenizer: Any, encoder: TransformerEncoder
) -> dict[str, TaughtSentences | None]:
    """Let the teacher read the sentences of the held-out documents, by name; None where there are none."""
    found: dict[str, TaughtSentences | None] = {}
    for name, text in data.heldout_texts(tokenizer).items():
        try:
            documents, _ = objective.examples(text, tokenizer, TEACHER_TOKENS)
        except DataError:  # no document has enough sentences
            found[name] = None
            continue
        found[name] = teach(documents, tokenizer, encoder.encode, seed=0)
    return found
