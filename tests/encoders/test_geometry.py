"""Geometry: values by hand, rows of length 1, constant dimensions, whitening, files."""

import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.encoders.geometry import FittedGeometry, parse_geometry

SAMPLE = torch.tensor([[3.0, 4.0], [0.0, 2.0], [6.0, 0.0]])  # mean (3, 2)


def _cloud(rows=400, dims=6, seed=0):
    scale = torch.arange(1.0, dims + 1)
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed)) * scale + 5


@pytest.mark.parametrize(
    ("spec", "rows", "by_hand"),
    [
        ("l2", SAMPLE.tolist(), [[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]]),
        (
            "center+l2",
            [[6.0, 6.0], [3.0, 2.0]],
            [[0.6, 0.8], [0.0, 0.0]],
        ),  # less (3, 2): (3, 4) and the mean itself
        ("l2", [[0.0, 0.0]], [[0.0, 0.0]]),
        ("none", [[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [3.0, 4.0]]),
    ],
)
def test_rows_by_hand(spec, rows, by_hand):
    torch.testing.assert_close(
        parse_geometry(spec).fit(SAMPLE).apply(torch.tensor(rows)), torch.tensor(by_hand)
    )


def test_dead_dimensions_are_dropped_by_all_but_none():
    sample = torch.cat([_cloud(), torch.full((400, 1), 0.3)], dim=1)[:, [0, 6, 1, 2, 3, 4, 5]]
    assert parse_geometry("none").fit(sample).apply(sample).shape == (400, 7)
    for spec in ("l2", "center+l2"):
        geometry = parse_geometry(spec).fit(sample)
        assert geometry.kept.tolist() == [0, 2, 3, 4, 5, 6]
        alive = torch.nn.functional.normalize((sample - geometry.shift)[:, geometry.kept])
        torch.testing.assert_close(geometry.apply(sample), alive)
    with pytest.raises(DataError, match="spans 6 dimensions"):
        parse_geometry("whiten:7").fit(sample)


def test_whitening_gives_uncorrelated_directions_of_variance_one():
    sample = _cloud() @ torch.randn(6, 6, generator=torch.Generator().manual_seed(3))
    geometry = parse_geometry("whiten:4").fit(sample)
    rows = (sample - geometry.shift) @ geometry.directions
    torch.testing.assert_close(rows.T.cov(), torch.eye(4), rtol=0, atol=1e-3)
    torch.testing.assert_close(rows.mean(0), torch.zeros(4), rtol=0, atol=1e-3)
    torch.testing.assert_close(geometry.apply(sample), torch.nn.functional.normalize(rows))


def test_whitening_keeps_the_leading_directions_with_a_fixed_sign():
    sample = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    # variances 8/3 and 2/3: the first axis leads, divided by its standard deviation
    directions = parse_geometry("whiten:1").fit(sample).directions
    torch.testing.assert_close(directions, torch.tensor([[(3 / 8) ** 0.5], [0.0]]))
    torch.testing.assert_close(parse_geometry("whiten:1").fit(-sample).directions, directions)


@pytest.mark.parametrize("spec", ["none", "l2", "center+l2", "whiten:3"])
def test_what_is_saved_is_loaded_to_the_bit_and_input_is_left_alone(spec, tmp_path):
    sample, rows = _cloud(), _cloud(seed=1)
    geometry = parse_geometry(spec).fit(sample)
    for name in ("once", "again"):
        geometry.save(tmp_path / name)
    assert torch.equal(FittedGeometry.load(tmp_path / "once").apply(rows), geometry.apply(rows))
    for name in ("geometry.json", "geometry.safetensors"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert torch.equal(sample, _cloud())
    assert torch.equal(rows, _cloud(seed=1))


def test_half_precision_embeddings_are_read_as_float32():
    half = parse_geometry("center+l2").fit(_cloud().half()).apply(_cloud(seed=1).half())
    assert half.dtype == torch.float32
    exact = parse_geometry("center+l2").fit(_cloud()).apply(_cloud(seed=1))
    torch.testing.assert_close(half, exact, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    "spec",
    ["", "L2", "center", "whiten", "whiten:", "whiten:0", "whiten:-3", "whiten:x", "whiten:²"],
)
def test_an_unknown_geometry_is_refused_with_all_that_are_known(spec):
    with pytest.raises(
        ConfigError, match=r"geometry='.*': must be one of none, l2, center\+l2, whiten:K"
    ):
        parse_geometry(spec)


def test_bad_samples_and_rows_are_refused_by_name(tmp_path):
    broken = _cloud()
    broken[17, 2] = float("inf")
    with pytest.raises(DataError, match="row 17 of the pool sample is not finite"):
        parse_geometry("l2").fit(broken)
    with pytest.raises(DataError, match="has 1 units; the geometry needs at least 2"):
        parse_geometry("l2").fit(SAMPLE[:1])
    for spec in ("center+l2", "whiten:1"):
        with pytest.raises(DataError, match="all rows of the pool sample are equal"):
            parse_geometry(spec).fit(torch.ones(5, 3))
    with pytest.raises(DataError, match="expected embeddings of 2 dims"):
        parse_geometry("l2").fit(SAMPLE).apply(_cloud())
    with pytest.raises(ArtifactError, match=r"geometry\.json: cannot be read: No such file"):
        FittedGeometry.load(tmp_path)
