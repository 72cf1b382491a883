"""Text of evaluation splits and near duplicates are kept away from training, counted by task and written down."""

import json
from pathlib import Path

import pytest
from toy_task import write_split, write_task

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus.documents import source_digests
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import corpus_stage, open_texts, task_stage
from dana.tasks import hygiene as stage
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

DEV = "A sentence of the development split that a pool must not hold at any price, says its author."
TEST = "Only the test split has this one: nineteen or more words which nobody should have seen before they are asked."
SHORT = "Eight words make this a sentence that counts."
OWN = "What the pool has of its own is neither here nor there, so it stays where it is and is read by all."


def _task(place, name, dev, test, train=("The training text of " * 5,)):
    card = write_task(place, name=name, data={"local": name}, splits={})
    for split, texts in (("train", train), ("dev", dev), ("test", test)):
        write_split(place / name, split, [{"text": text, "label": "fruit"} for text in texts])
    return str(card.rename(place / f"{name}.yaml"))


@pytest.fixture
def cards(tmp_path):
    """Two tasks; `zeta` has the test text of `alpha` for development."""
    return [
        _task(tmp_path / "cards", "zeta", dev=[TEST, "too short"], test=[SHORT]),
        _task(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST]),
    ]


@pytest.fixture
def pool(tmp_path):
    texts = [OWN, f"It said: {DEV.upper()}", f"{OWN} {SHORT}", f"Quoting «{TEST[:90]}", DEV[:40], f"{DEV} {TEST}"]
    path = tmp_path / "pool.jsonl"
    lines = [json.dumps({"id": f"d{place}", "text": text}) for place, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _ids(folder):
    return [document.doc_id for document in iterate_documents(folder)]


def _removed(folder):
    return [
        json.loads(line) for line in (folder / "__dana__" / "removed.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def test_documents_that_share_text_go_counted_by_task_and_named(pool, cards, tmp_path):
    made = corpus_stage([str(pool)], tmp_path / "out", cleaner=Cleaner(Hygiene(cards)))
    assert _ids(made.path) == ["d0", "d4"]
    counts = made.manifest["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (6, 2, {"overlap": 4})
    assert counts["overlap"] == {"alpha": {"shared": 3, "dropped": 3}, "zeta": {"shared": 3, "dropped": 1}}
    assert counts["by_source"] == {"pool": {"documents": 2, "characters": len(OWN) + 40}}
    lines = _removed(made.path)
    assert [(line["doc_id"], line["task"], line["match"], line["tokens"]) for line in lines] == [
        ("d1", "alpha", "ngram", 13),
        ("d2", "zeta", "sentence", 8),
        ("d3", "alpha", "ngram", 13),
        ("d3", "zeta", "ngram", 13),
        ("d5", "alpha", "ngram", 13),
        ("d5", "zeta", "ngram", 13),
    ]
    assert set(lines[0]) == {"doc_id", "match", "task", "tokens", "digest"}
    assert lines[2]["digest"] == lines[3]["digest"] != lines[0]["digest"]


def test_the_order_and_the_repetition_of_tasks_change_nothing(pool, cards, tmp_path):
    one = corpus_stage([str(pool)], tmp_path / "one", cleaner=Cleaner(Hygiene(cards)))
    two = corpus_stage([str(pool)], tmp_path / "two", cleaner=Cleaner(Hygiene([*cards[::-1], cards[0]])))
    assert one.fingerprint == two.fingerprint
    assert one.manifest["counts"] == two.manifest["counts"]


@pytest.mark.parametrize("most", [1, 2, 256])
def test_the_size_of_a_block_changes_nothing(pool, cards, tmp_path, monkeypatch, most):
    monkeypatch.setattr(stage, "DOCUMENTS_AT_ONCE", most)
    monkeypatch.setattr(stage, "CHARACTERS_AT_ONCE", 100 if most == 2 else 1 << 19)
    made = corpus_stage([str(pool)], tmp_path / "out", cleaner=Cleaner(Hygiene(cards)))
    assert _ids(made.path) == ["d0", "d4"]
    assert len(_removed(made.path)) == 6


def test_the_training_split_of_a_named_task_may_be_in_the_pool(cards, tmp_path):
    (tmp_path / "x.txt").write_text("The training text of " * 5, encoding="utf-8")
    made = corpus_stage([str(tmp_path / "x.txt")], tmp_path / "out", cleaner=Cleaner(Hygiene(cards)))
    assert made.manifest["counts"]["kept"] == 1


def test_without_settings_artifacts_are_what_they_were(pool, tmp_path):
    made = corpus_stage([str(pool)], tmp_path / "out", cleaner=Cleaner(Hygiene(ngram=7)))
    files = source_digests([str(pool)])
    assert made.manifest["depends_on"] == {"files": files, "order": ["pool.jsonl"], "on_bad_record": "fail"}
    assert set(made.manifest["counts"]) == {"in", "kept", "dropped", "rejected", "by_source"}
    assert sorted(path.name for path in made.path.iterdir()) == ["__dana__", "part-00000.parquet"]
    task = task_stage(str(pool), tmp_path / "task")
    assert set(task.manifest["depends_on"]) == {"name", "files", "seed", "held_out"}
    assert set(task.manifest["counts"]) == {"documents", "fit", "held_out", "held_out_unused"}


@pytest.mark.parametrize(("language", "kept"), [("de", ["d1"]), ("en", ["d0", "d1"])])
def test_sentences_of_evaluation_texts_end_by_the_rules_of_the_language(tmp_path, language, kept):
    """In German, "am 3. Oktober" ends no sentence, so the text of the development split has one of 11 words."""
    sentence = "Wir trafen uns am 3. Oktober in Berlin und gingen ins Kino"
    card = _task(tmp_path / "cards", "kino", dev=[f"{sentence}. Danach war Ruhe."], test=[OWN])
    lines = [
        json.dumps({"id": f"d{place}", "text": text}) for place, text in enumerate([f"«{sentence}», sagt sie.", DEV])
    ]
    (tmp_path / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    selection = Selection(encoder="hashing", language=language)
    general = [str(tmp_path / "pool.jsonl")]
    settings = RunSettings(
        str(tmp_path / "run"), card, general, hygiene=Hygiene([card]), selection=selection, detector="knn"
    )
    assert _ids(open_texts(settings)[1].artifact.path) == kept


def test_fingerprints_follow_every_setting_and_the_evaluation_text(pool, cards, tmp_path):
    settings = [
        Hygiene(),
        Hygiene(cards[:1]),
        Hygiene(cards),
        Hygiene(cards, ngram=12),
        Hygiene(cards, sentence=9),
        Hygiene(near_duplicates=0.8),
        Hygiene(near_duplicates=0.9),
        Hygiene(sample=0.5),
        Hygiene(sample=0.25),
    ]
    seen = [json.dumps(Cleaner(each).identity(general=True)) for each in settings]
    write_split(tmp_path / "cards" / "zeta", "dev", [{"text": "another", "label": "fruit"}])
    seen.append(json.dumps(Cleaner(Hygiene(cards)).identity(general=True)))
    seen.append(json.dumps(Cleaner(Hygiene(cards), language="de").identity(general=True)))
    assert len(set(seen)) == len(seen)
    assert str(tmp_path) not in "".join(seen)


def test_a_sample_is_that_share_the_same_whatever_is_around_and_within_a_larger_one(tmp_path):
    texts = [f"Document number {number}, which is one of many." for number in range(2000)]

    def kept(share, some, name, **hygiene):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps({"id": text, "text": text}) for text in some), encoding="utf-8")
        made = corpus_stage([str(path)], tmp_path / name, cleaner=Cleaner(Hygiene(sample=share, **hygiene)))
        counts = made.manifest["counts"]
        assert counts["in"] == counts["kept"] + sum(counts["dropped"].values())
        assert counts["dropped"].get("not sampled", 0) == len(some) - len(_ids(made.path))
        return set(_ids(made.path))

    tenth, half = kept(0.1, texts, "tenth"), kept(0.5, texts, "half")
    assert 160 <= len(tenth) <= 240, "within three standard deviations"
    assert 930 <= len(half) <= 1070
    assert tenth < half
    assert kept(0.1, texts[::2], "fewer") == tenth & set(texts[::2])
    assert kept(1.0, texts, "whole") == set(texts)


def test_a_task_is_not_sampled(tmp_path):
    card = _task(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=[OWN, f"{OWN} More.", f"{OWN} Still more."])
    made = task_stage(card, tmp_path / "task", cleaner=Cleaner(Hygiene([card], sample=0.01)))
    assert made.manifest["counts"]["fit_documents"]["kept"] == 3


def test_a_task_loses_training_texts_that_its_own_evaluation_holds_and_keeps_what_is_held_out(tmp_path):
    train = [OWN, f"{DEV} Again.", f"{OWN} Twice, but in other words."]
    card = _task(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=train)
    made = task_stage(card, tmp_path / "task", cleaner=Cleaner(Hygiene([card], near_duplicates=0.5)))
    assert [document.text for document in iterate_documents(made.path / "fit")] == [train[0], train[2]]
    assert [document.text for document in iterate_documents(made.path / "held_out")] == [DEV]
    counts = made.manifest["counts"]
    assert counts["fit_documents"] == {"in": 3, "kept": 2, "dropped": {"overlap": 1}}
    assert (counts["fit"], counts["overlap"]) == (2, {"alpha": {"shared": 1, "dropped": 1}})
    assert [line["match"] for line in _removed(made.path)] == ["ngram"]
    assert list(made.manifest["depends_on"]["hygiene"]) == ["language", "ngram", "sentence", "tasks"]


def test_a_task_of_plain_text_is_cleaned_too(pool, cards, tmp_path):
    made = task_stage(str(pool), tmp_path / "task", cleaner=Cleaner(Hygiene(cards)))
    assert set(_ids(made.path / "fit")) <= {"d0", "d4"}
    counts = made.manifest["counts"]["fit_documents"]
    assert counts["in"] == counts["kept"] + counts["dropped"]["overlap"] > counts["kept"]


def test_a_task_of_which_nothing_is_left_is_an_error(tmp_path):
    card = _task(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=[f"{DEV} Again."])
    with pytest.raises(DataError, match="every document to fit on shares text with evaluation splits of alpha"):
        task_stage(card, tmp_path / "task", cleaner=Cleaner(Hygiene([card])))
    assert not (tmp_path / "task").exists()


def test_near_duplicates_go_the_first_stays_and_overlaps_are_no_first(tmp_path, cards):
    base = " ".join(f"word{number}" for number in range(60))
    texts = [f"{DEV} {base}", f"{base} one", f"{base} two", OWN, f"{base} three"]
    (tmp_path / "x.txt").write_text("\n".join(texts), encoding="utf-8")
    made = corpus_stage([str(tmp_path / "x.txt")], tmp_path / "out", cleaner=Cleaner(Hygiene(cards, 13, 8, 0.8)))
    kept = list(iterate_documents(made.path))
    assert [document.text for document in kept] == [texts[1], texts[3]]
    counts = made.manifest["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (5, 2, {"overlap": 1, "near duplicate": 2})
    duplicates = [line for line in _removed(made.path) if line["match"] == "near_duplicate"]
    assert [line["of"] for line in duplicates] == [kept[0].doc_id] * 2


def test_a_cleaned_corpus_is_a_source_itself_and_a_users_removed_jsonl_too(pool, cards, tmp_path):
    one = corpus_stage([str(pool)], tmp_path / "one", cleaner=Cleaner(Hygiene(cards)))
    assert _ids(corpus_stage([str(one.path)], tmp_path / "two").path) == ["d0", "d4"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "removed.jsonl").write_text('{"text": "mine"}\n', encoding="utf-8")
    assert corpus_stage([str(tmp_path / "mine")], tmp_path / "three").manifest["counts"]["kept"] == 1


def test_hostile_text_is_looked_through_like_any_other(cards, tmp_path):
    texts = [
        "\\ud800",
        "?!",
        "עברית 👩‍👩‍👧 " * 9,
        "y" * 100_000,
        "word " * 1_000_000 + DEV.upper().replace(" ", "\\u0000 "),
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"text": "{text}"}}\n' for text in [*texts, OWN]), encoding="utf-8")
    made = corpus_stage([str(path)], tmp_path / "out", cleaner=Cleaner(Hygiene(cards, near_duplicates=0.8)))
    assert [len(document.text) for document in iterate_documents(made.path)] == [2, 9 * 12 - 1, 100_000, len(OWN)]
    counts = made.manifest["counts"]
    assert (counts["in"], counts["dropped"]) == (6, {"empty": 1, "overlap": 1})


def test_what_cannot_be_found_is_named_before_any_work(cards, tmp_path):
    with pytest.raises(ConfigError, match="unknown task 'chemport'; did you mean 'chemprot'"):
        Cleaner(Hygiene(["chemport"]))
    with pytest.raises(DataError, match="task alpha: no dev data"):
        Cleaner(Hygiene(cards), data=str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"decontaminate: alpha and zeta would both read .*alpha/dev\.jsonl"):
        Cleaner(Hygiene(cards), data=str(tmp_path / "cards" / "alpha"))
    with pytest.raises(ConfigError, match="ngram=0: must be at least 1"):
        Hygiene(ngram=0)
    with pytest.raises(ConfigError, match="sentence=0: must be at least 1"):
        Hygiene(sentence=0)
    with pytest.raises(ConfigError, match="near_duplicates=80"):
        Hygiene(near_duplicates=80)


def test_the_command_line_takes_several_tasks():
    from dana.cli.main import build_parser
    from dana.cli.settings import settings_from

    line = ["score", "--task", "x", "--general", "y", "--decontaminate", "sst2", "chemprot", "--near-duplicates", "0.8"]
    settings: RunSettings = settings_from(build_parser().parse_args(line))
    assert settings.hygiene == Hygiene(["sst2", "chemprot"], near_duplicates=0.8)
    only = settings_from(build_parser().parse_args(["rank", "--decontaminate", "sst2", "--task", "x"]))
    assert only.hygiene == Hygiene(["sst2"])


def test_one_planted_document_is_found_in_real_text(dana_data, tmp_path):
    from dana.tasks.card import load_card
    from dana.tasks.examples import read_split

    planted = max((example.text for example in read_split(load_card("chemprot"), "test")), key=len)
    (tmp_path / "planted.txt").write_text(planted, encoding="utf-8")
    sources = [str(dana_data / "general" / "tech_peps.jsonl.gz"), str(tmp_path / "planted.txt")]
    made = corpus_stage(sources, tmp_path / "out", cleaner=Cleaner(Hygiene(["chemprot"])))
    counts = made.manifest["counts"]
    assert (counts["in"], counts["kept"], counts["overlap"]["chemprot"]["shared"]) == (1135, 1134, 1)


def test_a_card_that_reads_another_field_is_read_again(tmp_path):
    card = _task(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=[OWN, f"{OWN} More."])
    task_stage(card, tmp_path / "task")
    text = Path(card).read_text(encoding="utf-8")
    Path(card).write_text(f"{text}\ntemplate: 'Read: {{text}}'\n", encoding="utf-8")
    with pytest.raises(ArtifactError, match="template"):
        task_stage(card, tmp_path / "task")
    before = Cleaner(Hygiene([card])).identity(general=True)
    Path(card).write_text(text, encoding="utf-8")
    assert Cleaner(Hygiene([card])).identity(general=True) != before
