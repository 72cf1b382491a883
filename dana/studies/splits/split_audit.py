"""Train, dev and test text, with one or two sides, to the share of dev and test lines that are also in train.

The layout is that of Table 8 of Aharoni and Goldberg 2020, which counts by one side; here each side is counted, and
either of them. Lines are equal if they are after :func:`dana.corpus.text.one_line`; an empty line is never shared.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dana.core.logging import tracked
from dana.core.text_table import Value
from dana.studies.splits.aligned import AlignedText
from dana.studies.splits.line_splits import EMPTY, Hashes, find_places, hash_blocks, hash_lines

SPLITS = ("train", "dev", "test")
EITHER = "either"
Splits = Mapping[str, AlignedText]


def audit_rows(domains: Mapping[str, Splits]) -> list[dict[str, Value]]:
    """A row a domain, split, split ``within`` which its lines were looked for, and side; streamed.

    Lines of dev and test are looked for in train, and those of test in dev. Of several domains they are then looked
    for in what all domains together have: ``any train``, ``any dev``. ``shared`` counts lines, repeated ones too, and
    ``share`` is in [0, 1]; of side ``either`` a pair counts whose source is a source there, or its target a target.
    Memory is 16 bytes a line of dev and test, however long train is.

    Args:
        domains: By name, then by split; train, and dev, test or both. All with as many sides.
    """
    held_out = {
        (name, split): hash_lines(texts for _, texts in splits[split].rows())
        for name, splits in domains.items()
        for split in SPLITS[1:]
        if split in splits
    }
    known = [np.unique(np.concatenate(side)) for side in zip(*held_out.values(), strict=True)]
    there = {(name, "train"): _met(name, splits["train"], known) for name, splits in domains.items()}
    there |= {place: hashes for place, hashes in held_out.items() if place[1] == "dev"}
    rows = []
    for within_any in (False, True) if len(domains) > 1 else (False,):
        for split, within in (("dev", "train"), ("test", "train"), ("test", "dev")):
            for name in domains:
                others = [there.get((other, within)) for other in domains if within_any or other == name]
                where = [hashes for hashes in others if hashes is not None]
                if (name, split) in held_out and where:
                    about = {"domain": name, "split": split, "within": f"any {within}" if within_any else within}
                    counted = _by_side(domains[name][split].sides, held_out[name, split], where)
                    rows += [{**about, **count} for count in counted]
    return rows


def _met(name: str, train: AlignedText, known: Sequence[np.ndarray]) -> Hashes:
    """Of the known hashes of each side, those that train has."""
    met = [np.zeros(len(hashes), bool) for hashes in known]
    rows = tracked(train.rows(), what=f"auditing {name}", unit="rows")
    for block in hash_blocks(texts for _, texts in rows):
        for seen, hashes, values in zip(met, known, block, strict=True):
            places = find_places(hashes, values)
            seen[places[places >= 0]] = True
    return tuple(hashes[seen] for hashes, seen in zip(known, met, strict=True))


def _by_side(names: Sequence[str], lines: Hashes, where: Sequence[Hashes]) -> Iterator[dict[str, Value]]:
    """Counts of the lines that are in any of `where`, by side and by either."""
    there = [np.concatenate(side) for side in zip(*where, strict=True)]
    shared = [(own != EMPTY) & np.isin(own, side) for own, side in zip(lines, there, strict=True)]
    counts = dict(zip(names, shared, strict=True))
    if len(shared) > 1:
        counts[EITHER] = shared[0] | shared[1]
    for side, found in counts.items():
        yield {"side": side, "lines": len(found), "shared": int(found.sum()), "share": float(found.mean())}
