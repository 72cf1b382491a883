"""Give the tokens of a tokenizer rows in the embeddings of a model that has too few."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dana.core.errors import ConfigError
from dana.models.head_file import gathered


def token_range(tokenizer: Any) -> int:
    """Return the number of rows that the ids of a tokenizer need: one more than its largest id.

    Ids may have holes, as where a line of ``vocab.txt`` is repeated: their range is then larger
    than their count, ``len(tokenizer)``.
    """
    largest: int = max(tokenizer.get_vocab().values())
    return max(len(tokenizer), 1 + largest)


def unused_ids(tokenizer: Any) -> list[int]:
    """Return the ids below :func:`token_range` that no token has, ascending."""
    used = set(tokenizer.get_vocab().values())
    return [number for number in range(token_range(tokenizer)) if number not in used]


def rows_of(model: Any) -> int:
    """Return the number of rows of a model's input embeddings."""
    rows: int = model.get_input_embeddings().weight.shape[0]
    return rows


def pieces_of_new_tokens(tokenizer: Any, rows: int) -> dict[int, list[int]]:
    """Find which tokens of the model each new token was before it had an id of its own.

    Args:
        tokenizer: A fast tokenizer.
        rows: Number of rows of the model; ids from there on are new.

    Returns:
        By new id, the ids of its pieces, each below `rows`; empty for a special token.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    from tokenizers import Tokenizer

    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"tokenizer {type(tokenizer).__name__}: does not say which pieces a new token is made "
            "of; save a fast one: AutoTokenizer.from_pretrained(FOLDER, use_fast=True)"
        )
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    added = [token for token in state["added_tokens"] if token["id"] >= rows]
    special = {token["id"] for token in added if token["special"]}
    # The tokenizer as it was before the new tokens.
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < rows]
    _remove_from_vocabulary(state["model"], rows)
    state["truncation"] = None
    state["padding"] = None
    state["post_processor"] = None
    before = Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    new = {number: token for token, number in tokenizer.get_vocab().items() if number >= rows}
    contents = {token["id"]: token["content"] for token in added}
    pieces: dict[int, list[int]] = {}
    for number in sorted(new):
        if number in special:
            pieces[number] = []
            continue
        text = contents.get(number) or tokenizer.convert_tokens_to_string([new[number]])
        pieces[number] = [piece for piece in before.encode(text.strip()).ids if piece < rows]
    return pieces


def _remove_from_vocabulary(model: dict[str, Any], rows: int) -> None:
    """Remove the ids from `rows` on from the vocabulary of a tokenizer's JSON, in place."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: the id is the place
        model["vocab"] = vocabulary[:rows]
        return
    kept = {token: number for token, number in vocabulary.items() if number < rows}
    model["vocab"] = kept
    if "merges" not in model:
        return
    merges = []
    for merge in model["merges"]:
        left, right = merge if isinstance(merge, list) else merge.split(" ", 1)
        if left in kept and right in kept and left + right in kept:
            merges.append([left, right])
    model["merges"] = merges


def add_rows(model: Any, size: int, pieces: Mapping[int, Sequence[int]]) -> int:
    """Give a model rows up to a number of them, in place.

    Each new token's row is the mean of those of its pieces. So are the rows of an output layer of
    its own, and its biases. A new row without pieces, such as that of a special token, is the mean
    of all rows that were there. Under ZeRO-3 the rows are whole while they are set.

    Args:
        model: A transformers model.
        size: Number of rows afterwards, if it has fewer.
        pieces: By id of a new token, the ids whose rows it begins as; its row may be there already.

    Returns:
        Number of new rows.
    """
    import torch

    with gathered([model.get_input_embeddings().weight]):
        before = rows_of(model)
    if size > before:
        model.resize_token_embeddings(size, mean_resizing=False)
    tensors = _vocabulary_tensors(model)
    with torch.no_grad(), gathered(tensors, modifier_rank=0):
        for tensor in tensors:
            mean = tensor[:before].mean(0)
            tensor[before:] = mean
            for number, parts in pieces.items():
                if parts:
                    tensor[number] = tensor[list(parts)].mean(0)
                else:
                    tensor[number] = mean
    return max(0, size - before)


def _vocabulary_tensors(model: Any) -> list[Any]:
    """List the weights and biases of a model that have a row for each token, each once."""
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]
    found: dict[int, Any] = {}
    for layer in layers:
        if layer is None:
            continue
        for parameter in layer.parameters(recurse=False):
            found[id(parameter)] = parameter
    return list(found.values())


def resize_embeddings(model: Any, tokenizer: Any) -> int:
    """Give every token of a tokenizer a row in a model, in place; return the number of new rows.

    See :func:`add_rows`.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    before = rows_of(model)
    size = token_range(tokenizer)
    if size <= before:
        return 0
    return add_rows(model, size, pieces_of_new_tokens(tokenizer, before))
