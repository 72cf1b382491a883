"""Task cards: what is read, what is refused, where data is searched; cards by name on the task path, includes."""

import os
from dataclasses import replace

import pytest
import toy_task
import yaml

from dana.core.errors import ConfigError, DataError
from dana.finetuning.settings import FinetuneSettings
from dana.tasks.card import SPLITS, TaskCard, Template, find_card, load_card
from dana.tasks.examples import Example, read_split
from dana.tasks.finder import TASK_PATH, add_to_task_path, card_files, card_names
from dana.tasks.settings import PRESETS, Preset
from dana.tasks.tables import card_text

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(autouse=True)
def no_shared_data(monkeypatch):
    """Undoes also what a test adds to the task path."""
    monkeypatch.delenv("DANA_DATA", raising=False)
    monkeypatch.setenv(TASK_PATH, "")


def card_with(folder, **changes):
    return load_card(str(toy_task.write_task(folder, **changes)))


def test_a_card_is_a_path_a_name_or_an_alias(toy_card, tmp_path):
    assert (toy_card.labels, toy_card.text, toy_card.direction) == (
        ["fruit", "metal", "bird"],
        "text",
        "higher",
    )
    assert load_card("citation_intent") == load_card("acl_arc")
    assert "acl_arc" in card_names()
    assert "citation_intent" not in card_names()
    assert find_card("notes.txt") is None
    for name, hint in (("chemprott", "'chemprot'"), (str(tmp_path / "gone.yaml"), "gone.yaml")):
        with pytest.raises(ConfigError) as error:
            load_card(name)
        assert hint in str(error.value)


PRESET = {
    "seeds": 0,
    "evaluate": "first",
    "warmup": 1.0,
    "learning_rate": 0.0,
    "batch_size": 0,
    "max_tokens": 2,
}


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
        *(({"name": name}, f"name={name!r}") for name in ("", "..", "../../x", "a/b", "a\nb")),
        ({"tags": ["Law"]}, "tags=['Law']"),
        ({"tags": ["law", "law"]}, "tags=['law', 'law']"),
        ({"text_pair": " "}, "text_pair=' '"),
        ({"template": "{title} {body}", "text": "body"}, "text='body'"),
        ({"presets": ["quick"]}, "presets=['quick']"),
        (
            {"presets": {"quick": {"epoch": 3}}},
            "presets.quick: unknown key 'epoch'; did you mean 'epochs'",
        ),
        *(
            ({"presets": {"quick": {key: value}}}, f"presets.quick: {key}={value!r}")
            for key, value in PRESET.items()
        ),
        *(
            ({"presets": {"quick": {"seeds": seeds}}}, f"presets.quick: seeds={seeds}")
            for seeds in ([], [1, 1], [-1])
        ),
        *(
            ({"template": text}, f"template={text!r}")
            for text in ("", "no field", "{", "{ }", "{a!r}", "{a:>9}", "{a")
        ),
    ],
)
def test_a_bad_card_is_refused_by_file_and_key(tmp_path, changes, key):
    with pytest.raises(ConfigError) as error:
        card_with(tmp_path, **changes)
    assert "toy.yaml: " in str(error.value)
    assert key in str(error.value)


def test_presets_override_single_values(tmp_path):
    card = card_with(
        tmp_path, labels=[0, 1], presets={"default": {"epochs": 9}, "mine": {"batch_size": 3}}
    )
    assert card.labels == ["0", "1"], "YAML reads them as numbers"
    assert card.preset("default") == Preset(epochs=9, batch_size=16, seeds=8, evaluate="best")
    assert card.preset("mine") == Preset(batch_size=3)
    assert card.preset("quick") == PRESETS["quick"]
    assert (Preset(seeds=3).seed_list, Preset(seeds=[7, 5]).seed_list) == ([0, 1, 2], [7, 5])
    with pytest.raises(ConfigError, match=r"preset='quik'.*did you mean 'quick'"):
        card.preset("quik")


@pytest.mark.parametrize("inside", ["deeper", "."])
def test_data_is_searched_in_the_named_folder_beside_the_card_then_in_dana_data(
    tmp_path, monkeypatch, inside
):
    card, other = (
        card_with(tmp_path / "card", data={"file": "deeper/toy_{split}"}),
        load_card("sciie"),
    )
    monkeypatch.setenv("DANA_DATA", str(tmp_path / "data"))
    path = toy_task.write_split(tmp_path / "folder" / inside, "toy_dev", [])
    assert card.files(str(tmp_path / "folder"), ["dev"]) == [str(path)]
    for folder in ("data", "card"):
        path = toy_task.write_split(tmp_path / folder / "deeper", "toy_test", [])
        assert card.files(None, ["test"]) == [str(path)]
    path = toy_task.write_split(tmp_path / "data" / "tasks" / "sciie", "test", [])
    assert other.files(None, ["test"]) == [str(path)]
    for missing, hint in (
        (card, "deeper/toy_{split}.jsonl into"),
        (other, "$DANA_DATA/tasks/sciie"),
    ):
        with pytest.raises(DataError, match=r"no train data .*--data") as error:
            missing.files(None, ["train"])
        assert hint in str(error.value)


def test_one_file_is_split_by_a_hash_of_ids_or_texts(tmp_path):
    card = card_with(tmp_path, data={"file": "every"}, splits={})

    def splits(records):
        toy_task.write_split(tmp_path, "every", records)
        return [read_split(card, split) for split in SPLITS]

    records = [
        {"id": f"d{at % 900}", "text": f"an owl {at}", "label": "bird"} for at in range(1000)
    ]
    examples = splits(records)
    assert sum(map(len, examples)) == 1000
    parts = [[example.id.partition("#")[0] for example in part] for part in examples]
    assert sum(len(set(part)) for part in parts) == 900, "two examples of one id are in one split"
    assert [len(set(part)) / 900 for part in parts] == pytest.approx([0.7, 0.12, 0.18], abs=0.03)
    reversed_parts = [
        {example.id.partition("#")[0] for example in part} for part in splits(records[::-1])
    ]
    assert reversed_parts == [set(part) for part in parts]
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
    changes = [
        {"text": "body"},
        {"text_pair": "more"},
        {"template": "{title} {body}"},
        {"id": "number"},
    ]
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
    record = {
        "id": 1,
        "title": "Birds",
        "meta": {"body": " a wren "},
        "text": "zinc",
        "label": "bird",
    }
    toy_task.write_split(tmp_path / "toy", "test", [record])
    assert read_split(card, "test") == [Example("1", "Birds\n a wren", 2)]


def write(path, **values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def refusal(call, *arguments):
    with pytest.raises(ConfigError) as error:
        call(*arguments)
    return str(error.value)


def test_cards_in_folders_of_the_path_are_found_by_file_name_and_alias(tmp_path, monkeypatch):
    path = toy_task.write_task(tmp_path / "a", name="words", aliases=["vocabulary"])
    toy_task.write_task(tmp_path / "a" / "base").rename(tmp_path / "a" / "_base.yaml")
    (tmp_path / "a" / "notes.txt").write_text("- no: [mapping")
    toy_task.write_task(tmp_path / "b", name="second").rename(tmp_path / "b" / "second.yml")
    monkeypatch.setenv(TASK_PATH, f"{tmp_path / 'a'}{os.pathsep}{os.pathsep}{tmp_path / 'b'}")
    assert {card_files()[name] for name in ("toy", "words", "vocabulary")} == {path.resolve()}
    assert load_card("vocabulary").name == "words"
    assert {"words", "second", "chemprot"} < set(card_names())
    assert {"toy", "vocabulary"}.isdisjoint(card_names())
    assert {"_base", "notes"}.isdisjoint(card_files())
    assert "did you mean 'vocabulary'" in refusal(load_card, "vocabulry")


def test_folders_are_added_once_as_absolute_paths(tmp_path, monkeypatch):
    toy_task.write_task(tmp_path / "cards")
    (tmp_path / "link").symlink_to(tmp_path / "cards")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TASK_PATH, str(tmp_path / "link"))
    add_to_task_path(["cards", "link"])
    add_to_task_path(["cards"])
    assert os.environ[TASK_PATH].split(os.pathsep) == [
        str(tmp_path / "link"),
        str(tmp_path / "cards"),
    ]
    assert load_card("toy").name == "toy"  # the link and its target are one folder


def test_a_name_of_two_cards_and_a_bad_card_of_the_path_are_refused(tmp_path):
    first = toy_task.write_task(tmp_path / "a", name="x").rename(tmp_path / "a" / "one.yaml")
    add_to_task_path([str(tmp_path / "a"), str(tmp_path / "b")])
    for two in ({"name": "x"}, {"name": "y", "aliases": ["x"]}):
        second = toy_task.write_task(tmp_path / "b", **two).rename(tmp_path / "b" / "two.yaml")
        message = refusal(load_card, "x")
        assert message.startswith(f"{second}: ")
        assert str(first) in message
    toy_task.write_task(tmp_path / "b", name="scierc").rename(second)
    assert "sciie.yaml" in refusal(card_files), "a shipped name"
    second.write_text("aliases: words")
    assert "two.yaml: aliases='words'" in refusal(card_files)


def test_keys_of_the_including_card_win_and_three_mappings_are_merged(tmp_path):
    base = {
        "presets": {"quick": {"epochs": 9, "seeds": 1}, "long": {"epochs": 50}},
        "tags": ["law"],
        "notes": "Base.",
    }
    toy_task.write_task(tmp_path / "base", **base)
    more = {
        "presets": {"quick": {"batch_size": 2}},
        "splits": {"dev": 31},
        "data": {"hub": "org/name"},
    }
    path = write(
        tmp_path / "mine.yaml",
        include="base/toy.yaml",
        name="mine",
        metric="accuracy",
        tags=["news"],
        **more,
    )
    card = TaskCard.read(path)
    assert (card.name, card.metric, card.tags, card.notes) == (
        "mine",
        "accuracy",
        ["news"],
        "Base.",
    )
    assert card.splits == {"train": 120, "dev": 31, "test": 60}
    assert card.data == {"local": "toy", "hub": "org/name"}
    assert card.preset("long").epochs == 50
    quick = card.preset("quick")  # a preset is one value: the base's epochs and seeds are gone
    assert (quick.epochs, quick.seeds, quick.batch_size) == (3, 3, 2)


def test_data_is_searched_beside_the_card_then_beside_the_included_file(tmp_path):
    base = toy_task.write_task(tmp_path / "base")
    path = write(tmp_path / "mine" / "mine.yaml", include="../base/toy.yaml", name="mine")
    card = TaskCard.read(path)
    assert [file.resolve() for file in card.origins] == [path, base]
    assert card.files(None, ["dev"]) == [str(path.parent / ".." / "base" / "toy" / "dev.jsonl")]
    toy_task.write_split(tmp_path / "mine" / "toy", "dev", [])
    assert card.files(None, ["dev"]) == [str(tmp_path / "mine" / "toy" / "dev.jsonl")]


def test_a_shipped_card_is_included_by_name_without_its_names(tmp_path):
    path = write(tmp_path / "mine.yaml", include="citation_intent", name="mine", metric="micro_f1")
    card = load_card(str(path))
    assert (card.name, card.aliases, card.metric) == ("mine", [], "micro_f1")
    assert card.labels == load_card("acl_arc").labels
    lines = card_text(card, None).splitlines()
    assert lines[:2] == [f"# file: {path}", f"# includes: {card.origins[1]}"]
    assert not [line for line in lines if line.startswith("include:")]
    write(tmp_path / "outer.yaml", include="mine.yaml", name="outer", title="nearest")
    assert (load_card(str(tmp_path / "outer.yaml")).title, card.title) == (
        "nearest",
        load_card("acl_arc").title,
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"include": "bse.yaml", "name": "mine"}, "include='bse.yaml'"),
        ({"include": "chemprott", "name": "mine"}, "did you mean 'chemprot'"),
        ({"include": ["base.yaml"], "name": "mine"}, "include=['base.yaml']"),
        ({"include": None, "name": "mine"}, "include=None"),
        ({"include": "citation_intent"}, "acl_arc.yaml: the key 'name' is missing"),
        ({"include": "bad.yaml", "name": "mine"}, "bad.yaml: unknown key 'metrik'"),
        ({"include": "sub/../mine.yaml"}, "mine.yaml: include: circular"),
        ({"include": "loop.yaml"}, "loop.yaml: include: circular"),
    ],
)
def test_a_bad_include_is_refused_with_its_file(tmp_path, values, says):
    toy_task.write_task(tmp_path).rename(tmp_path / "base.yaml")
    toy_task.write_task(tmp_path, metrik="accuracy").rename(tmp_path / "bad.yaml")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "loop.yaml", include="mine.yaml", name="loop")
    message = refusal(TaskCard.read, write(tmp_path / "mine.yaml", **values))
    assert "mine.yaml" in message
    assert says in message


WORDS = [
    "yes",
    "no",
    "010",
    "1e3",
    "null",
    "~",
    "on",
    "1:30",
    "2020-01-01",
    "0x1F",
    "1.0",
    "=",
    "a",
]


@pytest.mark.parametrize("form", ["[{}]", "&labels [{}]", "block"])
def test_labels_of_a_card_are_words_as_they_are_written(form, tmp_path):
    text = "".join(f"\n- {word}" for word in WORDS)
    labels = text if form == "block" else form.format(", ".join(WORDS))
    path = toy_task.write_task(tmp_path)
    values = yaml.safe_load(path.read_text())
    del values["labels"]
    path.write_text(f"{yaml.safe_dump(values)}labels: {labels}\n")
    card = TaskCard.read(path)
    assert card.labels == WORDS
    assert card.version == values["version"], "other keys are read as ever"
    toy_task.write_split(tmp_path / "toy", "dev", [{"text": word, "label": word} for word in WORDS])
    assert [example.label for example in read_split(card, "dev")] == [*range(len(WORDS))]
    include = tmp_path / "other.yaml"
    include.write_text(f"include: {path.name}\nname: other\n")
    assert TaskCard.read(include).labels == WORDS


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("[a, b: c]", "{'b': 'c'} is dict, not a name"),
        ("[a, [b]]", "['b'] is list, not a name"),
        ("\n- a\n-", "label '' is empty"),
        ("[yes, 'yes']", "all different"),
    ],
)
def test_labels_that_are_no_words_are_refused(labels, words, tmp_path):
    path = toy_task.write_task(tmp_path)
    values = yaml.safe_load(path.read_text())
    del values["labels"]
    path.write_text(f"{yaml.safe_dump(values)}labels: {labels}\n")
    with pytest.raises(ConfigError) as error:
        TaskCard.read(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_balanced_classes_are_part_of_what_decides_a_result_and_numbers_have_none(toy_card):
    assert "class_weight" not in toy_card.decisive
    balanced = replace(toy_card, class_weight="balanced")
    assert balanced.decisive == {**toy_card.decisive, "class_weight": "balanced"}
    for override, expected in ((None, "balanced"), ("none", None), ("balanced", "balanced")):
        assert FinetuneSettings(class_weight=override).fields_of(balanced).class_weight == expected
    with pytest.raises(ConfigError, match="numbers have no classes"):
        replace(balanced, kind="regression", labels=[], metric="mae", direction="lower")


def test_folders_named_as_the_hub_names_splits_are_found_below_any_path(tmp_path):
    from datasets import Dataset

    home = tmp_path / "dev" / "test"  # names of splits on the way
    for split in ("train", "validation", "test"):
        rows = [{"text": f"{split} text {row}", "label": "bird"} for row in range(3)]
        Dataset.from_list(rows).save_to_disk(str(home / "saved" / split))
    card = card_with(home, data={"local": "saved"}, splits={})
    for split, name in (("train", "train"), ("dev", "validation"), ("test", "test")):
        assert read_split(card, split)[0].text == f"{name} text 0"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"file": "{split}/x"}, "last part only"),
        ({"file": " "}, "not empty"),
        ({"hub": ""}, "not empty"),
    ],
)
def test_files_of_a_card_that_cannot_be_found_are_refused(tmp_path, data, words):
    with pytest.raises(ConfigError, match=words):
        card_with(tmp_path, data=data, splits={})
