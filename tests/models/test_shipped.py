"""The model that ships with dana: found by its name, verified, opened by transformers alone; it knows some English."""

import math
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import AutoModelForMaskedLM

import dana
from dana.core.errors import ArtifactError
from dana.models import folder
from dana.models.classifier import new_classifier
from dana.models.folder import (
    SHIPPED,
    check_checkpoint,
    load_backbone,
    load_own_tokenizer,
    model_identity,
    resolve_model,
)
from dana.models.language_model import load_language_model

MINI = Path(resolve_model("dana-mini"))


def test_it_is_found_by_its_name_and_is_the_folder():
    check_checkpoint("dana-mini")
    assert MINI.name == "dana-mini"
    assert model_identity("dana-mini") == model_identity(str(MINI))
    assert resolve_model("bert-base-uncased") == "bert-base-uncased"
    assert sum(file.stat().st_size for file in MINI.iterdir()) < 15e6


def test_a_folder_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dana-mini").mkdir()
    with pytest.raises(ArtifactError, match=r"dana-mini: .*config\.json"):
        check_checkpoint("dana-mini")


def test_other_weights_and_none_are_refused(monkeypatch):
    monkeypatch.setattr(folder, "SHIPPED", {"dana-mini": "0" * 64, "dana-none": "0" * 64})
    monkeypatch.setattr(folder, "_shipped_folder", folder._shipped_folder.__wrapped__)
    with pytest.raises(ArtifactError, match=f"expected sha256 000.*got {SHIPPED['dana-mini']}"):
        load_backbone("dana-mini")
    with pytest.raises(ArtifactError, match=r"dana-none/model.safetensors: missing; install dana again"):
        load_backbone("dana-none")


def test_transformers_opens_it_alone_and_dana_computes_in_float32():
    assert AutoModelForMaskedLM.from_pretrained(MINI).dtype == torch.float16
    assert load_backbone("dana-mini").dtype == torch.float32
    assert new_classifier("dana-mini", 3, 0).model.dtype == torch.float32
    model, tokenizer = dana.load_model("dana-mini")
    assert (type(model).__name__, model.dtype, len(tokenizer)) == ("ModernBertForMaskedLM", torch.float32, 8192)
    card = (MINI / "README.md").read_text(encoding="utf-8")
    for word in ("license:", "arXiv", "Wikipedia", "CC BY-SA", "decontaminated"):
        assert word in card


def test_it_knows_more_than_how_often_tokens_are(repository_texts):
    """Hidden tokens of text that it has not seen, against the frequencies of that very text."""
    model = load_language_model("dana-mini", lambda config: AutoModelForMaskedLM, seed=0).model.eval()
    tokenizer = load_own_tokenizer("dana-mini")
    rows = [tokenizer(text, truncation=True, max_length=128)["input_ids"] for text in repository_texts[:60]]
    counts = Counter(token for ids in rows for token in ids[1:-1])
    of_model, of_frequency = [], []
    for ids in rows:
        positions = list(range(3, len(ids) - 1, 7))
        tokens = torch.tensor([ids])
        masks = tokens.clone()
        masks[0, positions] = tokenizer.mask_token_id
        with torch.no_grad():
            log_probs = model(input_ids=masks).logits[0, positions].log_softmax(-1)
        of_model += log_probs.gather(1, tokens[0, positions, None])[:, 0].tolist()
        of_frequency += [math.log(counts[ids[position]] / counts.total()) for position in positions]
    assert len(of_model) > 500
    assert fmean(of_model) > fmean(of_frequency) + 0.5
