"""Derive seeds, generators and hashes from a root seed and labels.

Consumers never share a stream by accident, because each has its own labels: ``generator(seed,
"ranking", "negatives", 3)``. The same labels give the same numbers on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

# Odd, so that the keys of one document's units are all different (Weyl sequence). The strides of
# units and epochs are unrelated, so that every (unit, epoch) pair has its own key.
UNIT_STRIDE = np.uint64(0x9E3779B97F4A7C15)
EPOCH_STRIDE = np.uint64(0xC2B2AE3D27D4EB4F)


def derive_seed(root: int, *labels: str | int) -> int:
    """Derive a 63-bit seed from the root seed and the labels, in order.

    Args:
        root: The experiment's seed.
        labels: Purpose of the stream.
    """
    text = "\x1f".join([str(root), *(str(label) for label in labels)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(root: int, *labels: str | int) -> np.random.Generator:
    """Create a numpy generator seeded with :func:`derive_seed`."""
    return np.random.Generator(np.random.Philox(derive_seed(root, *labels)))


@contextmanager
def torch_seed(seed: int, device: "torch.device | None" = None) -> Iterator[None]:
    """Seed torch's global generator (and that of a CUDA device); restore its state afterwards."""
    import torch  # most callers of this module need no torch

    cuda_devices = [device] if device and device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices):
        torch.manual_seed(seed)
        yield


def hash_uniform(seed: int, keys: np.ndarray) -> np.ndarray:
    """Hash each key to a uniform number in [0, 1), a pure function of (seed, key).

    This is SplitMix64's finaliser over ``key + seed``, so the number of a key does not depend on
    the other keys.

    Args:
        seed: 64-bit seed, from :func:`derive_seed`.
        keys: uint64 of any shape.

    Returns:
        float64 of the same shape.

    References:
        Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, section 5.
    """
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def document_key(doc_id: str) -> int:
    """Hash a document id to a uint64."""
    return int.from_bytes(blake2b(doc_id.encode(), digest_size=8).digest(), "little")


def unit_keys(doc_id: str, numbers: np.ndarray) -> np.ndarray:
    """Hash each unit of a document to a uint64, without collisions within the document."""
    return unit_keys_of(np.uint64(document_key(doc_id)), numbers)


def unit_keys_of(documents: np.ndarray | np.uint64, numbers: np.ndarray) -> np.ndarray:
    """Compute :func:`unit_keys` from the keys of the units' documents (:func:`document_key`)."""
    with np.errstate(over="ignore"):
        return documents + numbers.astype(np.uint64) * UNIT_STRIDE


def epoch_keys(ids: np.ndarray, epochs: np.ndarray | int) -> np.ndarray:
    """Hash ids and their epochs to one key each, so that every epoch draws anew.

    Args:
        ids: uint64 of any shape.
        epochs: Epoch of each, from 0, of the same shape; or one for all.
    """
    with np.errstate(over="ignore"):
        return ids.astype(np.uint64) + np.asarray(epochs).astype(np.uint64) * EPOCH_STRIDE
