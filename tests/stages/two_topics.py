"""Two topical vocabularies, and the selection steps run on them: what the tests of these stages share."""

import gzip
import json
from importlib.metadata import EntryPoint, entry_points
from types import SimpleNamespace

from dana.core import registry
from dana.core.schemas import read_table
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.stages.texts import pool_stage, target_stage
from dana.stages.weigh import weigh_stage
from dana.weighting.selection import SELECTED_TEXT
from dana.weighting.settings import WeighSettings

SELECTION = Selection(encoder="hashing:dims=64,words=1")
CELLS = ["cell", "protein", "gene", "kinase", "receptor", "membrane"]
CELLS += ["enzyme", "binding", "ligand", "tumor", "assay", "antibody"]
COURTS = ["court", "judge", "appeal", "statute", "plaintiff", "verdict"]
COURTS += ["motion", "counsel", "trial", "evidence", "tort", "ruling"]
PLANTED = 15
POOL = 105


def one_document(vocabulary, random, sentences):
    lines = (" ".join(random.choice(vocabulary, 8)).capitalize() + "." for _ in range(sentences))
    return " ".join(lines)


def claims(*more):
    """List entry points as installed, and others that a package named toy claims."""
    owner = SimpleNamespace(name="toy")

    def entries(group):
        real = list(entry_points(group=group))
        ours = [entry for entry in real if entry.dist and entry.dist.name == registry.DISTRIBUTION]
        return (
            ours + [EntryPoint(*one, group)._for(owner) for one in more]
            if group == "dana.detectors"
            else real
        )

    return entries


def write_scores(texts, out, detector="knn", selection=SELECTION):
    task = TargetText(target_stage(str(texts / "cells.txt"), out / "target"))
    pool = PoolText(pool_stage([str(texts / "pool.jsonl")], out / "pool"))
    selector = build_selector("detector", detector, selection)
    Scoring(task, pool, selection, selector, out / "scores").run()
    return task, pool, out


def write_weights_of(topics, folder, **settings):
    out = topics[2]
    return weigh_stage(
        out / "scores", out / "pool", WeighSettings(**{"gamma": 3, **settings}), folder
    )


def read_selected(folder):
    with gzip.open(folder / SELECTED_TEXT, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def frame_of(folder):
    return read_table(folder).to_pandas()
