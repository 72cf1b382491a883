"""Generate text with decoders: several conversations at once, each with its own random numbers."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dana.core.device import find_device, has_bf16
from dana.core.errors import ArtifactError, DataError
from dana.models.folder import (
    load_complete,
    load_own_tokenizer,
    loading,
    padding_id,
    quiet_transformers,
    running,
)
from dana.models.heads import positions_of

# Tokens that a new tokenisation of a conversation may change at the end of what was read.
REWIND = 8


class RowSampling:
    """Logits processor that samples each row with its own random generator.

    It uses the Gumbel-max trick. The argmax of logits plus Gumbel noise is a sample of their
    softmax, so greedy decoding samples. With ``do_sample``, which uses torch's global generator, a
    row would depend on the others.

    Args:
        top_k: Number of most probable tokens to sample from; 0 for all.
        top_p: Share of the probability to sample from.
        seeds: Seed of each row.
        temperature: Divides the logits.

    References:
        Gumbel 1954; Maddison, Tarlow and Minka 2014, A* sampling, section 2.
    """

    def __init__(
        self, top_k: int, top_p: float, seeds: Sequence[int], temperature: float = 1.0
    ) -> None:
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        self.warpers: list[Any] = []
        if top_k:
            self.warpers.append(TopKLogitsWarper(top_k))
        if top_p < 1:
            self.warpers.append(TopPLogitsWarper(top_p))
        # On the CPU: the same on any device.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Add Gumbel noise to filtered logits of shape (rows, vocabulary).

        The argmax of a row is its sample.
        """
        scores = scores / self.temperature
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        width = scores.shape[1]
        rows = []
        for generator in self.generators:
            rows.append(torch.rand(width, generator=generator, dtype=torch.float64))
        gumbel = -torch.log(-torch.log(torch.stack(rows)))
        return scores + gumbel.to(scores)


class ChatDecoder:
    """A causal language model of transformers that answers conversations.

    It writes them by the chat template of its tokenizer. It runs on a GPU if there is one, in the
    precision of its weights. On a CPU weights of half precision are computed with in bfloat16 where
    that is faster, else in float32. Conversations of a batch are independent up to rounding. A
    batch that continues the one before reads only what is new.

    Args:
        model: Folder with safetensors weights, Hub name, or ``smollm2``.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        # Tokens, mask and cache of the last batch.
        self._read: tuple[list[list[int]], Tensor, Any] | None = None

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, with a chat template."""
        tokenizer = load_own_tokenizer(self.model)
        if not tokenizer.chat_template:
            raise ArtifactError(
                f"{self.model}: the tokenizer has no chat template; "
                "use an instruction-tuned model, such as smollm2"
            )
        return tokenizer

    @cached_property
    def network(self) -> Any:
        """The model, without its own generation settings, such as a repetition penalty."""
        from transformers import AutoModelForCausalLM, GenerationConfig

        network = load_complete(AutoModelForCausalLM, self.model, dtype="auto")
        device = find_device()
        if device.type == "cpu" and network.dtype in (torch.float16, torch.bfloat16):
            network = network.to(torch.bfloat16 if has_bf16(device) else torch.float32)
        ends = network.generation_config.eos_token_id
        if ends is None:
            ends = self.tokenizer.eos_token_id
        network.generation_config = GenerationConfig(
            eos_token_id=ends, pad_token_id=padding_id(self.tokenizer), do_sample=False
        )
        return network.eval().to(device=device)

    @torch.inference_mode()
    def answer(
        self,
        conversations: Sequence[Sequence[dict[str, str]]],
        tokens: int,
        sampling: RowSampling | None = None,
    ) -> list[str]:
        """Generate the next reply of each conversation.

        Args:
            conversations: Messages with ``role`` and ``content``; the last is the user's.
            tokens: Most tokens of a reply.
            sampling: Sampling of each row; None for the likeliest token each time.

        Raises:
            DataError: If conversation and reply exceed the model's positions.
        """
        rows = self._encode(conversations, tokens)
        mask, cache, starts = self._resume(rows)
        new = [row[start:] for row, start in zip(rows, starts, strict=True)]
        width = max(map(len, new))
        ids = torch.full((len(rows), mask.shape[1] + width), padding_id(self.tokenizer))
        mask = torch.cat([mask, torch.zeros(len(rows), width, dtype=torch.long)], 1)
        for number, row in enumerate(new):
            ids[number, -len(row) :] = torch.tensor(row)
            mask[number, -len(row) :] = 1
        output = self._generate(ids, mask, cache, tokens, sampling)
        self._read = (rows, mask, output.past_key_values)
        replies = output.sequences[:, ids.shape[1] :]
        texts: list[str] = self.tokenizer.batch_decode(replies, skip_special_tokens=True)
        return texts

    def _encode(
        self, conversations: Sequence[Sequence[dict[str, str]]], tokens: int
    ) -> list[list[int]]:
        """Return the tokens of conversations, each with room for `tokens` of a reply."""
        with loading(f"{self.model}: its chat template"):
            chats = self.tokenizer.apply_chat_template(
                list(map(list, conversations)), add_generation_prompt=True, return_dict=True
            )
        rows: list[list[int]] = chats["input_ids"]
        longest = max(map(len, rows))
        positions = positions_of(self.network.config)
        if longest + tokens > positions:
            length = f"{longest:,} tokens and {tokens:,} of a reply"
            raise DataError(
                f"{self.model}: a conversation of {length} exceeds the model's "
                f"{positions:,} positions; ask for a shorter reply, or take a model with more"
            )
        return rows

    def _generate(
        self, ids: Tensor, mask: Tensor, cache: Any, tokens: int, sampling: RowSampling | None
    ) -> Any:
        """Let the model go on from rows of tokens, of which the cache may hold the beginning."""
        from transformers import LogitsProcessorList

        device = self.network.device
        options: dict[str, Any] = {}
        if sampling is not None:
            options["logits_processor"] = LogitsProcessorList([sampling])
        if cache is not None:
            options["past_key_values"] = cache
        with running(self.network), quiet_transformers(), warnings.catch_warnings():
            # past_key_values has another name from transformers 5.24 on.
            warnings.simplefilter("ignore", FutureWarning)
            return self.network.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=tokens,
                return_dict_in_generate=True,
                **options,
            )

    def _resume(self, rows: list[list[int]]) -> tuple[Tensor, Any, list[int]]:
        """Find what was read of rows before.

        Returns:
            The mask and the cache of it, and the place where each row goes on; no columns, None
            and zeros if all has to be read.
        """
        nothing = (torch.zeros(len(rows), 0, dtype=torch.long), None, [0] * len(rows))
        if self._read is None or len(self._read[0]) != len(rows):
            return nothing
        rows_before, mask, cache = self._read
        self._read = None
        common = []
        lost = []
        for before, row in zip(rows_before, rows, strict=True):
            count = _common_length(before, row[:-1])  # at least one token has to be read
            common.append(count)
            lost.append(len(before) - count)
        # Windows and recurrent states forget what they have read, or cannot leave out a part of it.
        kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
        if max(lost) > REWIND or kinds != {"DynamicLayer"}:
            return nothing
        reply_length = cache.get_seq_length() - mask.shape[1]
        if reply_length:  # replies are read anew, as the template writes them
            cache.crop(-reply_length)
        mask = mask.clone()
        for number, count in enumerate(common):
            # Tokens stand where the mask is 1, with gaps between them.
            mask[number, mask[number].nonzero()[count:]] = 0
        return mask, cache, common


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens at the beginning that two rows share."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
