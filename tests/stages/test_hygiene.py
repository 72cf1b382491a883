"""Text of evaluation splits and near duplicates are kept away from training, counted by task and written down."""

import json
from pathlib import Path

import pytest
from toy_task import write_split, write_task

from dana.cli.main import build_parser
from dana.cli.settings import settings_from
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.corpus.documents import source_digests
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import open_texts, pool_stage, target_stage
from dana.tasks import hygiene
from dana.tasks.card import load_card
from dana.tasks.examples import read_split
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

DEV = "A sentence of the development split that a pool must not hold at any price, says its author."
TEST = "Only the test split has this one: nineteen or more words which nobody should have seen before they are asked."
SHORT = "Eight words make this a sentence that counts."
OWN = "What the pool has of its own is neither here nor there, so it stays where it is and is read by all."
TRAIN = "The training text of " * 5
POOL = [
    OWN,
    f"It said: {DEV.upper()}",
    f"{OWN} {SHORT}",
    f"Quoting «{TEST[:90]}",
    DEV[:40],
    f"{DEV} {TEST}",
]


def write_card(folder, name, dev, test, train=(TRAIN,)):
    card = write_task(folder, name=name, data={"local": name}, splits={})
    for split, texts in (("train", train), ("dev", dev), ("test", test)):
        write_split(folder / name, split, [{"text": text, "label": "fruit"} for text in texts])
    return str(card.rename(folder / f"{name}.yaml"))


def write_pool(path, texts):
    """Write texts that are named by their numbers."""
    lines = [json.dumps({"id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def cards(tmp_path):
    """Write two tasks; `zeta` has the test text of `alpha` for development."""
    return [
        write_card(tmp_path / "cards", "zeta", dev=[TEST, "too short"], test=[SHORT]),
        write_card(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST]),
    ]


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "pool.jsonl", POOL)


def documents(folder, name="doc_id"):
    return [getattr(document, name) for document in iterate_documents(folder)]


def removals(folder):
    lines = (folder / "__dana__" / "removed.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("at_once", "characters"), [(256, 1 << 19), (1, 1 << 19), (2, 100)])
def test_documents_that_share_text_go_counted_by_task(
    pool, cards, tmp_path, monkeypatch, at_once, characters
):
    monkeypatch.setattr(hygiene, "DOCUMENTS_AT_ONCE", at_once)
    monkeypatch.setattr(hygiene, "CHARACTERS_AT_ONCE", characters)
    artifact = pool_stage([pool], tmp_path / "out", cleaner=Cleaner(Hygiene(cards)))
    assert documents(artifact.path) == ["d0", "d4"]
    counts = artifact.manifest["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (6, 2, {"overlap": 4})
    assert counts["overlap"] == {
        "alpha": {"shared": 3, "dropped": 3},
        "zeta": {"shared": 3, "dropped": 1},
    }
    assert counts["by_source"] == {"pool": {"documents": 2, "characters": len(OWN) + 40}}
    lines = removals(artifact.path)
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
    again = pool_stage([pool], tmp_path / "two", cleaner=Cleaner(Hygiene([*cards[::-1], cards[0]])))
    assert again.fingerprint == artifact.fingerprint
    assert again.manifest["counts"] == counts


def test_a_cleaned_pool_is_a_source_itself_and_so_is_a_users_removed_jsonl(cards, tmp_path):
    """The training split of a named task may be in a pool."""
    pool = write_pool(tmp_path / "pool.jsonl", [*POOL, TRAIN])
    one = pool_stage([pool], tmp_path / "one", cleaner=Cleaner(Hygiene(cards)))
    assert documents(pool_stage([str(one.path)], tmp_path / "two").path) == ["d0", "d4", "d6"]
    (tmp_path / "mine").mkdir()
    write_pool(tmp_path / "mine" / "removed.jsonl", ["mine"])
    assert pool_stage([str(tmp_path / "mine")], tmp_path / "three").manifest["counts"]["kept"] == 1


def test_without_settings_artifacts_are_what_they_were(pool, tmp_path):
    artifact = pool_stage([pool], tmp_path / "out", cleaner=Cleaner(Hygiene(ngram=7)))
    files = {"files": source_digests([pool]), "order": ["pool.jsonl"], "on_bad_record": "fail"}
    assert artifact.manifest["depends_on"] == files
    assert set(artifact.manifest["counts"]) == {"in", "kept", "dropped", "rejected", "by_source"}
    names = sorted(path.name for path in artifact.path.iterdir())
    assert names == ["__dana__", "part-00000.parquet"]
    target = target_stage(pool, tmp_path / "target")
    assert set(target.manifest["depends_on"]) == {"name", "files", "seed", "held_out"}
    assert set(target.manifest["counts"]) == {"documents", "fit", "held_out", "held_out_unused"}


@pytest.mark.parametrize(("language", "ids"), [("de", ["d1"]), ("en", ["d0", "d1"])])
def test_sentences_of_evaluation_texts_end_by_the_rules_of_the_language(tmp_path, language, ids):
    """In German, "am 3. Oktober" ends no sentence, so the text of the development split has one of 11 words."""
    sentence = "Wir trafen uns am 3. Oktober in Berlin und gingen ins Kino"
    card = write_card(tmp_path / "cards", "kino", dev=[f"{sentence}. Danach war Ruhe."], test=[OWN])
    pool = [write_pool(tmp_path / "pool.jsonl", [f"«{sentence}», sagt sie.", DEV])]
    selection = Selection(encoder="hashing", language=language)
    settings = RunSettings(
        str(tmp_path / "run"), card, pool, hygiene=Hygiene([card]), selection=selection
    )
    assert documents(open_texts(settings)[1].artifact.path) == ids


def test_fingerprints_follow_every_setting_and_the_evaluation_text(cards, tmp_path):
    settings = [
        Hygiene(),
        Hygiene(cards[:1]),
        Hygiene(cards),
        Hygiene(cards, ngram=12),
        Hygiene(cards, sentence=9),
    ]
    settings += [
        Hygiene(near_duplicates=0.8),
        Hygiene(near_duplicates=0.9),
        Hygiene(sample=0.5),
        Hygiene(sample=0.25),
    ]
    identities = [json.dumps(Cleaner(each).identity(pool=True)) for each in settings]
    write_split(tmp_path / "cards" / "zeta", "dev", [{"text": "another", "label": "fruit"}])
    identities.append(json.dumps(Cleaner(Hygiene(cards)).identity(pool=True)))
    identities.append(json.dumps(Cleaner(Hygiene(cards), language="de").identity(pool=True)))
    assert len(set(identities)) == len(identities)
    assert str(tmp_path) not in "".join(identities)


def test_a_card_that_reads_another_field_is_read_again(tmp_path):
    card = write_card(
        tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=[OWN, f"{OWN} More."]
    )
    target_stage(card, tmp_path / "target")
    before = Cleaner(Hygiene([card])).identity(pool=True)
    text = Path(card).read_text(encoding="utf-8")
    Path(card).write_text(f"{text}\ntemplate: 'Read: {{text}}'\n", encoding="utf-8")
    with pytest.raises(ArtifactError, match="template"):
        target_stage(card, tmp_path / "target")
    assert Cleaner(Hygiene([card])).identity(pool=True) != before


def test_a_sample_is_that_share_the_same_whatever_is_around_and_within_a_larger_one(tmp_path):
    texts = [f"Document number {number}, which is one of many." for number in range(2000)]

    def sample(share, texts, name):
        pool = write_pool(tmp_path / f"{name}.jsonl", texts)
        artifact = pool_stage([pool], tmp_path / name, cleaner=Cleaner(Hygiene(sample=share)))
        counts, selection = artifact.manifest["counts"], documents(artifact.path, "text")
        assert counts["in"] == counts["kept"] + sum(counts["dropped"].values())
        assert counts["dropped"].get("not sampled", 0) == len(texts) - len(selection)
        return set(selection)

    tenth, half = sample(0.1, texts, "tenth"), sample(0.5, texts, "half")
    assert 160 <= len(tenth) <= 240, "within three standard deviations"
    assert 930 <= len(half) <= 1070
    assert tenth < half
    assert sample(0.1, texts[::2], "fewer") == tenth & set(texts[::2])
    assert sample(1.0, texts, "all") == set(texts)


def test_a_task_loses_training_texts_that_its_own_evaluation_holds_and_keeps_what_is_held_out(
    tmp_path,
):
    """A task is neither sampled nor freed of near duplicates."""
    train = [OWN, f"{DEV} Again.", f"{OWN} Twice, but in other words."]
    card = write_card(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=train)
    cleaner = Cleaner(Hygiene([card], near_duplicates=0.5, sample=0.01))
    artifact = target_stage(card, tmp_path / "target", cleaner=cleaner)
    assert documents(artifact.path / "fit", "text") == [train[0], train[2]]
    assert documents(artifact.path / "held_out", "text") == [DEV]
    counts = artifact.manifest["counts"]
    assert counts["fit_documents"] == {"in": 3, "kept": 2, "dropped": {"overlap": 1}}
    assert (counts["fit"], counts["overlap"]) == (2, {"alpha": {"shared": 1, "dropped": 1}})
    assert [line["match"] for line in removals(artifact.path)] == ["ngram"]
    assert list(artifact.manifest["depends_on"]["hygiene"]) == [
        "language",
        "ngram",
        "sentence",
        "tasks",
    ]
    card = write_card(tmp_path / "cards", "alpha", dev=[DEV], test=[TEST], train=train[1:2])
    with pytest.raises(
        DataError, match="every document to fit on shares text with evaluation splits of alpha"
    ):
        target_stage(card, tmp_path / "none", cleaner=Cleaner(Hygiene([card])))
    assert not (tmp_path / "none").exists()


def test_a_task_of_plain_text_is_cleaned_too(pool, cards, tmp_path):
    artifact = target_stage(pool, tmp_path / "target", cleaner=Cleaner(Hygiene(cards)))
    assert set(documents(artifact.path / "fit")) <= {"d0", "d4"}
    counts = artifact.manifest["counts"]["fit_documents"]
    assert counts["in"] == counts["kept"] + counts["dropped"]["overlap"] > counts["kept"]


def test_near_duplicates_go_the_first_stays_and_overlaps_are_no_first(tmp_path, cards):
    base = " ".join(f"word{number}" for number in range(60))
    pool = write_pool(
        tmp_path / "x.jsonl", [f"{DEV} {base}", f"{base} one", f"{base} two", OWN, f"{base} three"]
    )
    artifact = pool_stage([pool], tmp_path / "out", cleaner=Cleaner(Hygiene(cards, 13, 8, 0.8)))
    assert documents(artifact.path) == ["d1", "d3"]
    counts = artifact.manifest["counts"]
    assert (counts["in"], counts["kept"], counts["dropped"]) == (
        5,
        2,
        {"overlap": 1, "near duplicate": 2},
    )
    lines = [(line["doc_id"], line["match"], line.get("of")) for line in removals(artifact.path)]
    assert lines == [
        ("d0", "ngram", None),
        ("d2", "near_duplicate", "d1"),
        ("d4", "near_duplicate", "d1"),
    ]


def test_hostile_text_is_looked_through_like_any_other(cards, tmp_path):
    texts = ["\ud800", "?!", "עברית 👩‍👩‍👧 " * 9, "y" * 100_000]
    texts += ["word " * 200_000 + DEV.upper().replace(" ", "\u0000 "), OWN]
    pool = write_pool(tmp_path / "x.jsonl", texts)
    artifact = pool_stage(
        [pool], tmp_path / "out", cleaner=Cleaner(Hygiene(cards, near_duplicates=0.8))
    )
    assert [len(text) for text in documents(artifact.path, "text")] == [
        2,
        9 * 12 - 1,
        100_000,
        len(OWN),
    ]
    assert artifact.manifest["counts"]["dropped"] == {"empty": 1, "overlap": 1}


def test_what_cannot_be_read_is_named_and_the_command_line_takes_several_tasks(cards, tmp_path):
    with pytest.raises(DataError, match="task alpha: no dev data"):
        Cleaner(Hygiene(cards), data=str(tmp_path / "nowhere"))
    with pytest.raises(
        ConfigError, match=r"decontaminate: alpha and zeta would both read .*alpha/dev\.jsonl"
    ):
        Cleaner(Hygiene(cards), data=str(tmp_path / "cards" / "alpha"))
    with pytest.raises(ConfigError, match="sentence=0: must be at least 1"):
        Hygiene(sentence=0)
    line = [
        "score",
        "--task",
        "x",
        "--pool",
        "y",
        "--decontaminate",
        "sst2",
        "chemprot",
        "--near-duplicates",
        "0.8",
    ]
    assert settings_from(build_parser().parse_args(line)).hygiene == Hygiene(
        ["sst2", "chemprot"], near_duplicates=0.8
    )


def test_one_planted_document_is_found_in_real_text(dana_data, tmp_path):
    text = max((example.text for example in read_split(load_card("chemprot"), "test")), key=len)
    (tmp_path / "planted.txt").write_text(text, encoding="utf-8")
    sources = [str(dana_data / "general" / "tech_peps.jsonl.gz"), str(tmp_path / "planted.txt")]
    counts = pool_stage(sources, tmp_path / "out", cleaner=Cleaner(Hygiene(["chemprot"]))).manifest[
        "counts"
    ]
    assert (counts["in"], counts["kept"], counts["overlap"]["chemprot"]["shared"]) == (
        1135,
        1134,
        1,
    )
