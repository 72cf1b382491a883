"""Task cards: what is read, what is refused, where data is searched."""

from dataclasses import replace

import pytest
import toy_task

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import SPLITS, Template, find_card, load_card
from dana.tasks.examples import Example, read_split
from dana.tasks.finder import card_names
from dana.tasks.settings import PRESETS, Preset

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(autouse=True)
def no_shared_data(monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)


def card_with(folder, **changes):
    return load_card(str(toy_task.write_task(folder, **changes)))


def test_a_card_is_a_path_a_name_or_an_alias(toy_card, tmp_path):
    assert (toy_card.labels, toy_card.text, toy_card.direction) == (["fruit", "metal", "bird"], "text", "higher")
    assert load_card("citation_intent") == load_card("acl_arc")
    assert "acl_arc" in card_names()
    assert "citation_intent" not in card_names()
    assert find_card("notes.txt") is None
    for name, hint in (("chemprott", "'chemprot'"), (str(tmp_path / "gone.yaml"), "gone.yaml")):
        with pytest.raises(ConfigError) as error:
            load_card(name)
        assert hint in str(error.value)


PRESET = {"seeds": 0, "evaluate": "first", "warmup": 1.0, "learning_rate": 0.0, "batch_size": 0, "max_tokens": 2}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"metrik": "accuracy"}, "did you mean 'metric'"),
        ({"metric": "f1"}, "metric='f1'"),
        ({"direction": "lower"}, "direction='lower'"),
        ({"labels": ["a", "a"]}, "labels=['a', 'a']"),
        ({"labels": ["a"]}, "labels=['a']"),
        ({"labels": "a b"}, "labels='a b'"),
        ({"splits": {"valid": 3}}, "splits=['valid']"),
        ({"splits": {"train": "many"}}, "splits"),
        ({"data": {}}, "data={}"),
        ({"data": {"local": "x", "file": "y"}}, "data="),
        ({"data": {"hub": "org/name@main"}}, "data.hub='org/name@main'"),
        ({"data": {"hub": "org/name@:x"}}, "data.hub='org/name@:x'"),
        ({"data": {"url": "x"}}, "data={'url': 'x'}"),
        ({"origins": "/"}, "origins='/'"),
        ({"tags": ["Law"]}, "tags=['Law']"),
        ({"tags": ["law", "law"]}, "tags=['law', 'law']"),
        ({"text_pair": " "}, "text_pair=' '"),
        ({"template": "{title} {body}", "text": "body"}, "text='body'"),
        ({"presets": ["quick"]}, "presets=['quick']"),
        ({"presets": {"quick": {"epoch": 3}}}, "presets.quick: unknown key 'epoch'; did you mean 'epochs'"),
        *(({"presets": {"quick": {key: value}}}, f"presets.quick: {key}={value!r}") for key, value in PRESET.items()),
        *(({"presets": {"quick": {"seeds": seeds}}}, f"presets.quick: seeds={seeds}") for seeds in ([], [1, 1], [-1])),
        *(({"template": text}, f"template={text!r}") for text in ("", "no field", "{", "{ }", "{a!r}", "{a:>9}", "{a")),
    ],
)
def test_a_bad_card_is_refused_by_file_and_key(tmp_path, changes, key):
    with pytest.raises(ConfigError) as error:
        card_with(tmp_path, **changes)
    assert "toy.yaml: " in str(error.value)
    assert key in str(error.value)


def test_presets_override_single_values(tmp_path):
    card = card_with(tmp_path, labels=[0, 1], presets={"default": {"epochs": 9}, "mine": {"batch_size": 3}})
    assert card.labels == ["0", "1"], "YAML reads them as numbers"
    assert card.preset("default") == Preset(epochs=9, batch_size=16, seeds=8, evaluate="best")
    assert card.preset("mine") == Preset(batch_size=3)
    assert card.preset("quick") == PRESETS["quick"]
    assert (Preset(seeds=3).seed_list, Preset(seeds=[7, 5]).seed_list) == ([0, 1, 2], [7, 5])
    with pytest.raises(ConfigError, match=r"preset='quik'.*did you mean 'quick'"):
        card.preset("quik")


@pytest.mark.parametrize("inside", ["deeper", "."])
def test_data_is_searched_in_the_named_folder_beside_the_card_then_in_dana_data(tmp_path, monkeypatch, inside):
    card, other = card_with(tmp_path / "card", data={"file": "deeper/toy_{split}"}), load_card("sciie")
    monkeypatch.setenv("DANA_DATA", str(tmp_path / "data"))
    path = toy_task.write_split(tmp_path / "folder" / inside, "toy_dev", [])
    assert card.files(str(tmp_path / "folder"), ["dev"]) == [str(path)]
    for folder in ("data", "card"):
        path = toy_task.write_split(tmp_path / folder / "deeper", "toy_test", [])
        assert card.files(None, ["test"]) == [str(path)]
    path = toy_task.write_split(tmp_path / "data" / "tasks" / "sciie", "test", [])
    assert other.files(None, ["test"]) == [str(path)]
    for missing, hint in ((card, "deeper/toy_{split}.jsonl into"), (other, "$DANA_DATA/tasks/sciie")):
        with pytest.raises(DataError, match=r"no train data .*--data") as error:
            missing.files(None, ["train"])
        assert hint in str(error.value)


def test_one_file_is_split_by_a_hash_of_ids_or_texts(tmp_path):
    card = card_with(tmp_path, data={"file": "every"}, splits={})

    def splits(records):
        toy_task.write_split(tmp_path, "every", records)
        return [read_split(card, split) for split in SPLITS]

    records = [{"id": f"d{at % 900}", "text": f"an owl {at}", "label": "bird"} for at in range(1000)]
    parts = [[example.id for example in part] for part in splits(records)]
    assert sum(map(len, parts)) == 1000
    assert sum(len(set(part)) for part in parts) == 900, "two examples of one id are in one split"
    assert [len(set(part)) / 900 for part in parts] == pytest.approx([0.7, 0.12, 0.18], abs=0.03)
    assert [{example.id for example in part} for part in splits(records[::-1])] == [set(part) for part in parts]
    parts = splits([{"text": f"an owl {at % 90}", "label": "bird"} for at in range(180)])
    texts = [{example.text for example in part} for part in parts]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 90
    with pytest.raises(DataError, match=r"no examples of (train|dev|test)"):
        splits([{"text": "an owl", "label": "bird"}] * 2)


@pytest.mark.parametrize("commit", ["", f"@{COMMIT}"])
@pytest.mark.parametrize("config", ["", ":small"])
def test_a_dataset_of_the_hub_is_read_at_its_commit(tmp_path, monkeypatch, commit, config):
    calls = []

    def load_dataset(*arguments, **options):
        calls.append((*arguments, options["split"], options["revision"]))
        return [{"text": "a wren", "label": "bird"}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    card = card_with(tmp_path, data={"hub": f"org/name{commit}{config}"}, name="remote", splits={})
    assert card.files(None, ["dev"]) == [f"hf:org/name{commit}:{config[1:]}:validation"]
    assert [example.text for example in read_split(card, "dev")] == ["a wren"]
    assert calls == [("org/name", config[1:] or None, "validation", commit[1:] or None)]
    with pytest.raises(DataError, match="no dev data"):  # a folder that was named is not ignored
        card.files(str(tmp_path / "nowhere"), ["dev"])


def test_local_splits_in_the_layout_of_the_hub_are_read(tmp_path):
    for split, word in (("train", "owl"), ("validation", "wren"), ("test", "crow")):
        toy_task.write_split(tmp_path / "hub", split, [{"text": word, "label": "bird"}])
    card = card_with(tmp_path, data={"hub": str(tmp_path / "hub")}, name="remote", splits={})
    assert [read_split(card, split)[0].text for split in SPLITS] == ["owl", "wren", "crow"]


def test_the_identity_of_texts_has_what_they_depend_on(toy_card):
    assert toy_card.text_identity == {"version": toy_card.version}
    changes = [{"text": "body"}, {"text_pair": "more"}, {"template": "{title} {body}"}, {"id": "number"}]
    changes += [{"version": toy_card.version + 1}, {"kind": "multi_label", "metric": "micro_f1"}]
    identities = {str(replace(toy_card, **change).text_identity) for change in changes}
    assert len({*identities, str(toy_card.text_identity)}) == len(changes) + 1
    others = replace(toy_card, title="another", notes="more", metric="accuracy")
    assert others.text_identity == toy_card.text_identity


def test_a_text_may_be_made_of_several_fields(tmp_path):
    template = Template.parse("{title}: {meta.body} ({title}, {{as is}})")
    assert template.fields == ["title", "meta.body"]
    assert template.fill({"title": "a", "meta.body": "b {title}"}) == "a: b {title} (a, {as is})"
    card = card_with(tmp_path, template="{title}\n{meta.body}")
    record = {"id": 1, "title": "Birds", "meta": {"body": " a wren "}, "text": "zinc", "label": "bird"}
    toy_task.write_split(tmp_path / "toy", "test", [record])
    assert read_split(card, "test") == [Example("1", "Birds\n a wren", 2)]
