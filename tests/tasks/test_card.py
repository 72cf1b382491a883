from dataclasses import replace

import pytest
import toy_task

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import SPLITS, TaskCard, find_card, load_card
from dana.tasks.examples import read_split
from dana.tasks.finder import card_names
from dana.tasks.settings import PRESETS, Preset

COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_a_card_of_ones_own_is_a_path(toy_card):
    assert toy_card.labels == ["fruit", "metal", "bird"]
    assert (toy_card.text, toy_card.label, toy_card.direction) == ("text", "label", "higher")


def test_a_name_or_an_alias_finds_a_shipped_card():
    assert load_card("citation_intent") == load_card("acl_arc")
    assert "acl_arc" in card_names()
    assert "citation_intent" not in card_names()


def test_a_text_file_is_no_card():
    assert find_card("notes.txt") is None


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown task 'chemprott'; did you mean 'chemprot'\? Known: acl_arc, "):
        load_card("chemprott")


def test_a_missing_yaml_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such file"):
        load_card(str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metrik": "accuracy"}, r"toy\.yaml: unknown key 'metrik'; did you mean 'metric'\?"),
        ({"metric": "f1"}, r"toy\.yaml: metric='f1': must be one of accuracy, micro_f1, macro_f1"),
        ({"direction": "lower"}, r"toy\.yaml: direction='lower': must be higher"),
        ({"labels": ["a", "a"]}, r"toy\.yaml: labels=\['a', 'a'\]: must be at least two, all different"),
        ({"labels": ["a"]}, r"toy\.yaml: labels=\['a'\]: must be at least two"),
        ({"labels": "a b"}, r"toy\.yaml: labels='a b': must be a list"),
        ({"splits": {"valid": 3}}, r"toy\.yaml: splits=\['valid'\]: must be among train, dev, test"),
        ({"splits": {"train": "many"}}, r"toy\.yaml: .*splits"),
        ({"data": {}}, r"toy\.yaml: data=\{\}: must be local or file, or hub"),
        ({"data": {"local": "x", "file": "y"}}, r"toy\.yaml: data=.*: must be local or file, or hub"),
        ({"data": {"hub": "org/name@main"}}, r"toy\.yaml: data\.hub='org/name@main': must be .*a branch can change"),
        ({"data": {"hub": "org/name@:x"}}, r"toy\.yaml: data\.hub='org/name@:x': must be "),
        ({"data": {"url": "x"}}, r"toy\.yaml: data=\{'url': 'x'\}: must be local or file, or hub"),
        ({"version": "first"}, r"toy\.yaml: .*version"),
        ({"origins": "/"}, r"toy\.yaml: origins="),
        ({"tags": ["Law"]}, r"toy\.yaml: tags=\['Law'\]: must be lower-case words with hyphens, all different"),
        ({"tags": ["law", "law"]}, r"toy\.yaml: tags=\['law', 'law'\]: must be .*all different"),
        ({"tags": "law"}, r"toy\.yaml: .*tags"),
        ({"tag": ["law"]}, r"toy\.yaml: unknown key 'tag'; did you mean 'tags'\?"),
        ({"presets": ["quick"]}, r"toy\.yaml: presets=\['quick'\]: must map names to hyper-parameters"),
        (
            {"presets": {"quick": {"epoch": 3}}},
            r"toy\.yaml: presets\.quick: unknown key 'epoch'; did you mean 'epochs'",
        ),
        ({"presets": {"quick": {"epochs": 0}}}, r"toy\.yaml: presets\.quick: epochs=0: must be at least 1"),
        ({"presets": {"quick": {"epochs": "five"}}}, r"toy\.yaml: presets\.quick: .*epochs"),
    ],
)
def test_a_bad_card_is_refused_with_file_key_and_what_is_allowed(tmp_path, changes, says):
    with pytest.raises(ConfigError, match=says):
        TaskCard.read(toy_task.write_task(tmp_path, **changes))


def test_a_missing_key_is_named(tmp_path):
    (tmp_path / "bare.yaml").write_text(
        "name: bare\ntitle: t\nversion: 1\nlabels: [a, b]\nmetric: accuracy\ndata: {local: x}\n"
    )
    with pytest.raises(ConfigError, match=r"bare\.yaml: the key 'splits' is missing"):
        load_card(str(tmp_path / "bare.yaml"))


def test_labels_that_yaml_takes_for_numbers_are_names(tmp_path):
    assert load_card(str(toy_task.write_task(tmp_path, labels=[0, 1]))).labels == ["0", "1"]


def test_a_card_replaces_single_values_of_a_preset_and_adds_its_own(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path, presets={"default": {"epochs": 9}, "mine": {"batch_size": 3}})))
    assert card.preset("default") == Preset(epochs=9, batch_size=16, seeds=8, evaluate="best")
    assert card.preset("mine") == Preset(batch_size=3)
    assert card.preset("quick") == PRESETS["quick"]


def test_an_unknown_preset_suggests_the_nearest(toy_card):
    with pytest.raises(ConfigError, match="preset='quik': task toy has no such preset; did you mean 'quick'"):
        toy_card.preset("quik")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"seeds": []}, "seeds=.*at least 1"),
        ({"seeds": 0}, "seeds=0.*at least 1"),
        ({"seeds": [1, 1]}, "seeds=.*distinct"),
        ({"seeds": [-1]}, "seeds=.*not negative"),
        ({"evaluate": "first"}, "evaluate='first': must be last or best"),
        ({"warmup": 1.0}, r"warmup=1.0: must be in \[0, 1\)"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: must be above 0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"max_tokens": 2}, "max_tokens=2"),
    ],
)
def test_bad_hyper_parameters_are_refused(values, says):
    with pytest.raises(ConfigError, match=says):
        Preset(**values)


def test_seeds_are_a_number_or_a_list():
    assert Preset(seeds=3).seed_list == [0, 1, 2]
    assert Preset(seeds=[7, 5]).seed_list == [7, 5]


def test_data_is_found_beside_the_card(toy_card):
    assert toy_card.files(None, ["dev"]) == [str(toy_card.origins[0].parent / "toy" / "dev.jsonl")]


@pytest.mark.parametrize("inside", ["toy", "."])
def test_data_goes_before_the_cards_own_folder(toy_card, tmp_path, inside):
    toy_task.write_split(tmp_path / "other" / inside, "dev", [])
    expected = str(tmp_path / "other" / inside / "dev.jsonl")
    assert toy_card.files(str(tmp_path / "other"), ["dev"]) == [expected]


def test_the_environment_is_searched_last(tmp_path, monkeypatch):
    monkeypatch.setenv("DANA_DATA", str(tmp_path))
    path = toy_task.write_split(tmp_path / "tasks" / "sciie", "test", [])
    assert load_card("sciie").files(None, ["test"]) == [str(path)]


def test_missing_data_says_where_it_was_looked_for_and_how_to_provide_it(monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    with pytest.raises(DataError, match=r"task sciie: no train data .*sciie/train.*--data.*\$DANA_DATA/tasks/sciie"):
        load_card("sciie").files(None, ["train"])


@pytest.mark.parametrize("inside", ["kept", "."])
def test_files_of_splits_are_found_by_their_names(tmp_path, monkeypatch, inside):
    card = load_card(str(toy_task.write_task(tmp_path, data={"file": "kept/toy_{split}"})))
    path = toy_task.write_split(tmp_path / "given" / inside, "toy_dev", [])
    assert card.files(str(tmp_path / "given"), ["dev"]) == [str(path)]
    monkeypatch.setenv("DANA_DATA", str(tmp_path / "data"))
    shared = toy_task.write_split(tmp_path / "data" / "kept", "toy_test", [])
    assert card.files(None, ["test"]) == [str(shared)]
    beside = toy_task.write_split(tmp_path / "kept", "toy_test", [])
    assert card.files(None, ["test"]) == [str(beside)]
    with pytest.raises(DataError, match=r"no train data .*kept/toy_train.*put kept/toy_\{split\}.jsonl into"):
        card.files(None, ["train"])


def test_one_file_is_parted_by_a_hash_of_the_id(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path, data={"file": "every"}, splits={})))
    records = [{"id": f"d{at % 900}", "text": f"an owl {at}", "label": "bird"} for at in range(1000)]
    toy_task.write_split(tmp_path, "every", records)
    found = {split: read_split(card, split) for split in SPLITS}
    ids = {split: {example.id for example in examples} for split, examples in found.items()}
    assert sum(map(len, found.values())) == 1000
    assert sum(map(len, ids.values())) == 900, "two examples of one id are in one split"
    assert [len(ids[split]) / 900 for split in SPLITS] == pytest.approx([0.7, 0.12, 0.18], abs=0.03)
    toy_task.write_split(tmp_path, "every", records[::-1])
    assert {split: {example.id for example in read_split(card, split)} for split in SPLITS} == ids


def _holds(card, split):
    try:
        return len(read_split(card, split))
    except DataError:
        return 0


def test_one_file_without_ids_is_parted_by_its_texts(tmp_path):
    card = load_card(str(toy_task.write_task(tmp_path, data={"file": "every"}, splits={})))
    records = [{"text": f"an owl {at % 90}", "label": "bird"} for at in range(180)]
    toy_task.write_split(tmp_path, "every", records)
    texts = [{example.text for example in read_split(card, split)} for split in SPLITS]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 90
    toy_task.write_split(tmp_path, "every", [{"id": "only", "text": "an owl", "label": "bird"}])
    empty = [split for split in SPLITS if not _holds(card, split)]
    assert len(empty) == 2
    with pytest.raises(DataError, match=rf"every\.jsonl: has no examples of {empty[0]}"):
        read_split(card, empty[0])


@pytest.mark.parametrize(
    ("hub", "source"),
    [
        ("org/name", "hf:org/name::validation"),
        ("org/name:small", "hf:org/name:small:validation"),
        (f"org/name@{COMMIT}:small", f"hf:org/name@{COMMIT}:small:validation"),
        (f"org/name@{COMMIT}", f"hf:org/name@{COMMIT}::validation"),
    ],
)
def test_a_card_may_name_a_dataset_of_the_hub(tmp_path, monkeypatch, hub, source):
    monkeypatch.delenv("DANA_DATA", raising=False)
    card = load_card(str(toy_task.write_task(tmp_path, data={"hub": hub}, name="remote")))
    assert card.files(None, ["dev"]) == [source]
    with pytest.raises(DataError, match="no dev data"):  # a folder that was named is not passed over in silence
        card.files(str(tmp_path / "nowhere"), ["dev"])


@pytest.mark.parametrize("at", ["", f"@{COMMIT}"])
def test_a_dataset_of_the_hub_is_read_at_the_commit_of_the_card(tmp_path, monkeypatch, at):
    import datasets

    asked = []

    def load_dataset(*arguments, **named):
        asked.append((*arguments, named["split"], named["revision"]))
        return [{"text": "a wren", "label": "bird"}]

    monkeypatch.delenv("DANA_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    card = load_card(str(toy_task.write_task(tmp_path, data={"hub": f"org/name{at}:small"}, name="remote", splits={})))
    assert [example.text for example in read_split(card, "dev")] == ["a wren"]
    assert asked == [("org/name", "small", "validation", at[1:] or None)]


def test_splits_in_the_layout_of_the_hub_are_read_without_a_network(tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    for split, word in (("train", "owl"), ("validation", "wren"), ("test", "crow")):
        toy_task.write_split(tmp_path / "hub", split, [{"text": word, "label": "bird"}])
    card = load_card(str(toy_task.write_task(tmp_path, data={"hub": str(tmp_path / "hub")}, name="remote", splits={})))
    found = {split: [example.text for example in read_split(card, split)] for split in SPLITS}
    assert found == {"train": ["owl"], "dev": ["wren"], "test": ["crow"]}


def test_texts_depend_on_the_fields_they_are_made_of_and_usual_ones_are_not_named(toy_card):
    card = load_card(str(toy_card.origins[0]))
    assert card.text_identity == {"version": card.version}
    others = [
        replace(card, text="body"),
        replace(card, text_pair="more"),
        replace(card, template="{title} {body}"),
        replace(card, id="number"),
        replace(card, version=card.version + 1),
        replace(card, kind="multi_label", metric="micro_f1"),
    ]
    told = [str(each.text_identity) for each in others]
    assert len({*told, str(card.text_identity)}) == len(others) + 1
    assert replace(card, title="another", notes="more", metric="accuracy").text_identity == card.text_identity
