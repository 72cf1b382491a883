"""The whole study at a toy size, and on real text: a translator is better on its own domain."""

import gzip
import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from toy_translation import toy_settings, write_sides
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from dana.core.errors import ConfigError
from dana.stages.settings import RunSettings
from dana.studies.translation.pairs import open_pairs, pairs_stage
from dana.studies.translation.settings import TranslationSettings
from dana.studies.translation.stage import plan_translation, run_translation
from dana.studies.translation.translator import (
    chosen_model,
    target_loss,
    text_stage,
    train_stage,
    vocabulary_stage,
)


def run_settings(folder, **changes):
    study = toy_settings(
        folder, selectors=["random", "moore_lewis", "oracle"], targets=["garden"], **changes
    )
    settings = RunSettings(out=str(folder / "mt"))
    encoder = replace(settings.selection, encoder="hashing:dims=32")
    return replace(settings, selection=encoder, **{"translation": study})


@pytest.mark.slow
def test_all_steps_run_once_and_the_tables_have_every_translator(tmp_path):
    settings = run_settings(tmp_path, epochs=1, share=0.5, test_pairs=2, max_tokens=60)
    study = settings.section("translation")
    for files in (study.train, study.test):
        files |= {"2019": files.pop("kitchen"), "NA": files.pop("garden")}
    study.targets[:] = ["NA"]
    page = run_translation(settings)
    states = plan_translation(settings).states()
    assert set(states.values()) == {"done"}
    files = (
        page.parent / "tables" / f"{name}.csv"
        for name in ("matrix", "choices", "audit", "correlations")
    )
    matrix, choices, audit, correlations = (
        pd.read_csv(file, keep_default_na=False) for file in files
    )
    assert set(zip(matrix["translator"], matrix["test"], strict=True)) == {*product(["NA", "2019", "all"],
                                                                                    ["NA", "2019"])}  # fmt: skip
    assert correlations["n"].tolist() == [4, 4, 2, 2], (
        "a name that is a number, or means no number, is a name"
    )
    assert audit["domain"].tolist() == ["2019"] * 3 + ["NA"] * 3
    assert choices["selector"].tolist() == ["random", "moore_lewis", "oracle"]
    assert choices.set_index("selector")["precision"]["oracle"] == 1
    before = page.read_bytes()
    assert run_translation(settings).read_bytes() == before
    assert {cell.stat().st_mtime_ns for cell in page.parent.rglob("*-checkpoints")} == set()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"selectors": []}, r"targets=\['garden'\]: must be left out without selectors"),
        ({"targets": ["law"]}, r"targets=\['law'\]: must be some of garden, kitchen"),
        ({"test": {"garden": ["x"]}}, "test=.*files of garden, kitchen"),
        ({"train": {"garden": ["x"]}}, "train=.*two domains or more"),
        ({"dev": {"law": ["x"]}}, r"dev=\['law'\]"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_any_text_is_read(tmp_path, changes, says):
    settings = run_settings(tmp_path)
    study = replace(settings.section("translation"), **changes)
    with pytest.raises(ConfigError, match=says):
        run_translation(replace(settings, **{"translation": study}))
    assert not (tmp_path / "mt").exists()


@pytest.mark.parametrize(
    "changes",
    [{"width": 100}, {"sides": ["de", "de"]}, {"batch_tokens": 10}, {"share": 0.0}, {"vocabulary": 100},
     {"train": {"all": ["x"]}}, {"selectors": ["knn", "knn"], "train": {"a": ["x"]}},
     {"smoothing": 1.0}, {"test_pairs": 0}, {"test": {"all": ["x"]}}, {"dev": {"a/b": ["x"]}},
     {"train": {"audit.csv": ["x"]}}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(ConfigError, match=f"{next(iter(changes))}="):
        TranslationSettings(**changes)


def test_files_and_names_of_translators_are_checked():
    for files in ([], ["x", "y", "z"]):
        with pytest.raises(ConfigError, match=r"test\.law=.*one or two files"):
            TranslationSettings(test={"law": files})
    train = {"law": ["x"], "law-random": ["y"]}
    with pytest.raises(ConfigError, match=r"two translators that are called \['law-random'\]"):
        TranslationSettings(train=train, selectors=["random"])


@pytest.mark.slow
def test_a_translator_predicts_its_own_domain_better_than_another_ones(tmp_path):
    """Losses of a target token on held-out text; it fails when the domains of training and test are swapped."""
    if not (data := os.environ.get("DANA_DATA")):
        pytest.skip("DANA_DATA is not set")
    files: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for name, rows in {"koran": range(1400), "law": range(1400)}.items():
        for split, part in {"train": rows[:1200], "test": rows[1200:]}.items():
            sides = []
            for language in ("de", "en"):
                with gzip.open(
                    Path(data, "domains", f"{name}.{language}.txt.gz"), "rt", encoding="utf-8"
                ) as lines:
                    sides.append(lines.read().splitlines()[part.start : part.stop])
            files[split][name] = write_sides(tmp_path, f"{name}-{split}", (sides[0], sides[1]))
    size = {"layers": 2, "width": 128, "vocabulary": 4000, "max_tokens": 160, "batch_tokens": 2048}
    settings = TranslationSettings(
        **files, **size, held_out=50, epochs=1, dev_pairs=1, warmup_steps=10
    )
    pairs = pairs_stage(settings, tmp_path / "pairs").path
    vocabulary = vocabulary_stage(
        pairs, settings.domains, settings.vocabulary, tmp_path / "vocabulary"
    ).path
    losses = {}
    for name in settings.domains:
        text, dev = (
            text_stage(
                pairs, vocabulary, [name], split, settings.max_tokens, tmp_path / split / name
            ).path
            for split in ("train", "dev")
        )
        trained = train_stage(
            text, dev, pairs, vocabulary, name, settings, tmp_path / "translators" / name
        )
        folder = chosen_model(trained.path)
        model, tokenizer = (
            AutoModelForSeq2SeqLM.from_pretrained(folder),
            AutoTokenizer.from_pretrained(folder),
        )
        for test in settings.domains:
            table = open_pairs(pairs, test, "test").head(100)
            losses[name, test] = target_loss(model, tokenizer, table, settings)
    for name, other in (("koran", "law"), ("law", "koran")):
        assert losses[name, name] < losses[other, name] - 0.3, losses
