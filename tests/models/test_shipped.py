"""The model that ships with dana: found by its name, verified, opened by transformers alone."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

import dana
from dana.core.errors import ArtifactError
from dana.models import folder
from dana.models.classifier import new_classifier
from dana.models.folder import (
    SHIPPED,
    check_checkpoint,
    load_backbone,
    model_identity,
    resolve_model,
)

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
    with pytest.raises(
        ArtifactError, match=r"dana-none/model.safetensors: missing; install dana again"
    ):
        load_backbone("dana-none")


def test_transformers_opens_it_alone_and_dana_computes_the_same_in_float32():
    assert AutoModelForMaskedLM.from_pretrained(MINI).dtype == torch.float32
    stored = load_file(MINI / "model.safetensors").values()
    assert {value.dtype for value in stored} == {torch.float16}
    assert load_backbone("dana-mini").dtype == torch.float32
    assert new_classifier("dana-mini", 3, 0).model.dtype == torch.float32
    model, tokenizer = dana.load_model("dana-mini")
    assert (type(model).__name__, model.dtype, len(tokenizer)) == (
        "ModernBertForMaskedLM",
        torch.float32,
        8192,
    )
    reference = AutoModelForMaskedLM.from_pretrained(MINI, dtype=torch.float32)
    inputs = AutoTokenizer.from_pretrained(MINI)(
        "It was found in the [MASK] of the patient.", return_tensors="pt"
    )
    assert (
        inputs["input_ids"][0].tolist()
        == tokenizer("It was found in the [MASK] of the patient.")["input_ids"]
    )
    with torch.no_grad():
        assert torch.equal(model.eval()(**inputs).logits, reference.eval()(**inputs).logits)
    card = (MINI / "README.md").read_text(encoding="utf-8")
    assert all(word in card for word in ("license:", "Wikipedia", "CC BY-SA", "decontaminated"))
