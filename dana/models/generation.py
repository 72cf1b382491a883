"""Generate text with decoders: several conversations at once, each with random numbers of its own."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
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

REWIND = (
    8  # tokens that a new tokenisation of a conversation may change at the end of what was read
)


class RowSampling:
    """Logits processor that samples each row with its own random generator, by the Gumbel-max trick.

    The argmax of logits plus Gumbel noise is a sample of their softmax, so greedy decoding samples.
    With ``do_sample``, which uses torch's global generator, a row would depend on the others.

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

        self.warpers: list[Any] = [TopKLogitsWarper(top_k)] if top_k else []
        self.warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []
        self.generators = [
            torch.Generator().manual_seed(seed) for seed in seeds
        ]  # on the CPU: the same on any device
        self.temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Add Gumbel noise to filtered logits of shape (rows, vocabulary); the argmax of a row is its sample."""
        scores = scores / self.temperature
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        width = scores.shape[1]
        uniform = torch.stack(
            [
                torch.rand(width, generator=generator, dtype=torch.float64)
                for generator in self.generators
            ]
        )
        gumbel = -torch.log(-torch.log(uniform))
        return scores + gumbel.to(scores)


class ChatDecoder:
    """A causal language model of transformers that answers conversations by the chat template of its tokenizer.

    Runs on a GPU if there is one, in the precision of its weights. On a CPU weights of half
    precision are computed with in bfloat16 where that is faster, else in float32. Conversations of
    a batch are independent up to rounding. A batch that continues the one before reads only what is
    new.

    Args:
        model: Folder with safetensors weights, Hub name, or ``smollm2``.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self._read: tuple[list[list[int]], Tensor, Any] | None = (
            None  # tokens, mask and cache of the last batch
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, with a chat template."""
        tokenizer = load_own_tokenizer(self.model)
        if not tokenizer.chat_template:
            raise ArtifactError(
                f"{self.model}: the tokenizer has no chat template; use an instruction-tuned model, "
                "such as smollm2"
            )
        return tokenizer

    @cached_property
    def network(self) -> Any:
        """The model, without its own generation settings, such as a repetition penalty."""
        from transformers import AutoModelForCausalLM, GenerationConfig

        network, device = (
            load_complete(AutoModelForCausalLM, self.model, dtype="auto"),
            find_device(),
        )
        if device.type == "cpu" and network.dtype in (torch.float16, torch.bfloat16):
            network = network.to(torch.bfloat16 if has_bf16(device) else torch.float32)
        ends = network.generation_config.eos_token_id
        ends = self.tokenizer.eos_token_id if ends is None else ends
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
        from transformers import LogitsProcessorList

        with loading(f"{self.model}: its chat template"):
            chats = self.tokenizer.apply_chat_template(
                list(map(list, conversations)), add_generation_prompt=True, return_dict=True
            )
        rows: list[list[int]] = chats["input_ids"]
        longest, positions = max(map(len, rows)), positions_of(self.network.config)
        if longest + tokens > positions:
            length = f"{longest:,} tokens and {tokens:,} of a reply"
            raise DataError(
                f"{self.model}: a conversation of {length} exceeds the model's {positions:,} positions; "
                "ask for a shorter reply, or take a model with more"
            )
        mask, cache, starts = self._resume(rows)
        new = [row[start:] for row, start in zip(rows, starts, strict=True)]
        width = max(map(len, new))
        ids = torch.full((len(rows), mask.shape[1] + width), padding_id(self.tokenizer))
        mask = torch.cat([mask, torch.zeros(len(rows), width, dtype=torch.long)], 1)
        for number, row in enumerate(new):
            ids[number, -len(row) :] = torch.tensor(row)
            mask[number, -len(row) :] = 1
        device = self.network.device
        options: dict[str, Any] = (
            {"logits_processor": LogitsProcessorList([sampling])} if sampling else {}
        )
        options |= {"past_key_values": cache} if cache is not None else {}
        with running(self.network), quiet_transformers(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # past_key_values has another name from 5.24 on
            output = self.network.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=tokens,
                return_dict_in_generate=True,
                **options,
            )
            self._read = rows, mask, output.past_key_values
        return self.tokenizer.batch_decode(
            output.sequences[:, ids.shape[1] :], skip_special_tokens=True
        )

    def _resume(self, rows: list[list[int]]) -> tuple[Tensor, Any, list[int]]:
        """Return mask and cache of what was read of these rows before, and where each row goes on; else nothing."""
        nothing = torch.zeros(len(rows), 0, dtype=torch.long), None, [0] * len(rows)
        if self._read is None or len(self._read[0]) != len(rows):
            return nothing
        before, mask, cache = self._read
        self._read = None
        pairs = [
            list(zip(old, row[:-1], strict=False)) for old, row in zip(before, rows, strict=True)
        ]
        common = [
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both)) for both in pairs
        ]
        lost = [len(old) - count for old, count in zip(before, common, strict=True)]
        # Windows and recurrent states forget what they have read, or cannot leave out a part of it.
        kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
        if max(lost) > REWIND or kinds != {"DynamicLayer"}:
            return nothing
        if (
            replies := cache.get_seq_length() - mask.shape[1]
        ):  # they are read anew, as the template writes them
            cache.crop(-replies)
        mask = mask.clone()
        for number, count in enumerate(
            common
        ):  # tokens stand where the mask is 1, with gaps between them
            mask[number, mask[number].nonzero()[count:]] = 0
        return mask, cache, common
