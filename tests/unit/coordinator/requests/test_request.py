"""The limits of a request: each is refused with the field's name and the limit."""

from dataclasses import replace

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.requests.chat import ROLES, read_messages
from coordinator.requests.request import GenerationRequest, RequestReader
from coordinator.requests.tokenizer import Tokenizer
from specpair.errors import InvalidFieldError, NotSupportedError, PromptTooLongError
from specpair.model_info import ModelInfo, TokenizerFiles
from specpair.options import Drafter, Encoding, Rule, WorkAhead
from specpair.server.config import ServerConfig
from specpair.v1 import coordinator_service_pb2 as pb
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.requests.tokenizers import byte_level

CONFIG = CoordinatorConfig(server=ServerConfig(port=0), target_addresses=("a:1",))


async def read(tokenizer: Tokenizer | None = None, **fields: object) -> GenerationRequest:
    return await read_beside(None, tokenizer, **fields)


async def read_beside(
    draft: ModelInfo | None, tokenizer: Tokenizer | None = None, **fields: object
) -> GenerationRequest:
    fields = {"token_ids": {"ids": [1, 2, 3]}, **fields} if not fields.keys() & {"text", "chat"} else fields
    target = model_info(
        max_model_len=11 if "chat" in fields else 10, vocab_size=4096, eos_token_ids=[0], max_num_seqs=40
    )
    reader = RequestReader(config=CONFIG, target=target, tokenizer=tokenizer, draft=draft)
    return await reader.read(pb.GenerateTokensRequest(**fields))  # type: ignore[arg-type]


async def test_what_a_request_leaves_out() -> None:
    request = await read()
    assert request.prompt_ids == (1, 2, 3)
    assert request.max_tokens == 7
    assert request.num_speculative_tokens == CONFIG.num_speculative_tokens
    assert (request.rule, request.encoding) == (Rule.BLOCK, Encoding.SPARSE)
    assert request.sampling.stop_token_ids == (0,)
    assert (request.lenience, request.n, request.best_of) == (1.0, 1, 1)
    assert (request.logprobs, request.prompt_logprobs, request.wants_prompt) == (None, None, False)
    assert request.sampling.temperature == 1.0


@pytest.mark.parametrize("mode", WorkAhead)
async def test_whether_to_work_ahead_is_the_requests_or_else_the_servers(mode: WorkAhead) -> None:
    assert (await read()).work_ahead is CONFIG.work_ahead is WorkAhead.AUTO
    assert (await read(work_ahead=f"WORK_AHEAD_MODE_{mode.name}")).work_ahead is mode
    reader = RequestReader(config=replace(CONFIG, work_ahead=mode), target=model_info(), tokenizer=None)
    assert (await reader.read(pb.GenerateTokensRequest(token_ids={"ids": [1]}))).work_ahead is mode


@pytest.mark.parametrize("rule", Rule)
async def test_the_rule_is_the_requests_or_else_the_servers(rule: Rule) -> None:
    named = f"ACCEPTANCE_RULE_{rule.name}"
    assert (await read(rule=named)).rule is rule
    reader = RequestReader(config=replace(CONFIG, rule=rule), target=model_info(), tokenizer=None)

    async def rule_of(**fields: object) -> Rule:
        return (await reader.read(pb.GenerateTokensRequest(token_ids={"ids": [1]}, **fields))).rule  # type: ignore[arg-type]

    assert await rule_of() is rule
    assert [await rule_of(rule=f"ACCEPTANCE_RULE_{other.name}") for other in Rule] == [*Rule]
    assert await rule_of(lenience=0.5) is Rule.TOKEN


async def test_an_unknown_mode_of_working_ahead_is_refused() -> None:
    with pytest.raises(InvalidFieldError, match="work_ahead: 9"):
        await read(work_ahead=9)


async def test_a_seed_is_drawn_unless_given() -> None:
    assert (await read()).sampling.seed != (await read()).sampling.seed
    assert (await read(sampling={"seed": 0})).sampling.seed == 0


async def test_values_are_taken_over() -> None:
    request = await read(
        byte_level(),
        text="a b",
        max_tokens=2,
        num_speculative_tokens=0,
        ignore_eos=True,
        sampling={"stop_token_ids": [7]},
        stop_strings=["x"],
        rule="ACCEPTANCE_RULE_TOKEN",
        encoding="DISTRIBUTION_ENCODING_DENSE",
    )
    assert list(request.prompt_ids) == byte_level().encode("a b")
    assert (request.max_tokens, request.num_speculative_tokens) == (2, 0)
    assert request.sampling.stop_token_ids == (7,) and request.stop_strings == ("x",)
    assert (request.rule, request.encoding) == (Rule.TOKEN, Encoding.DENSE)


async def test_sampling_options_are_taken_over() -> None:
    request = await read(
        sampling={
            "min_tokens": 7,
            "stop_token_ids": [9, 4, 9],
            "logit_bias": {5: -1.5},
            "banned_token_ids": [3],
            "min_p": 0.25,
        }
    )
    sampling = request.sampling
    assert (sampling.min_tokens, sampling.min_p) == (7, 0.25)
    assert sampling.stop_token_ids == (0, 4, 9), "the model's own too: nothing else keeps them back before min_tokens"
    assert sampling.logit_bias == ((5, -1.5),) and sampling.banned_token_ids == (3,)


async def test_a_drafter_must_be_one_that_the_draft_has() -> None:
    assert (await read()).drafter is None
    ngram = await read(drafter="DRAFTER_NGRAM")
    assert ngram.drafter is Drafter.NGRAM, "the coordinator has it"
    assert (await read(drafter="DRAFTER_MODEL")).drafter is Drafter.MODEL, "it proposes nothing, which is allowed"
    with pytest.raises(InvalidFieldError, match="drafter: is bigram; there is no draft service"):
        await read(drafter="DRAFTER_BIGRAM")
    assert ngram.sequence_options(64).drafter is Drafter.NGRAM
    draft = model_info(drafters=(Drafter.MODEL, Drafter.NGRAM))
    assert (await read_beside(draft, drafter="DRAFTER_NGRAM")).drafter is Drafter.NGRAM
    with pytest.raises(InvalidFieldError, match="drafter: is bigram; the draft has model, ngram"):
        await read_beside(draft, drafter="DRAFTER_BIGRAM")
    with pytest.raises(InvalidFieldError, match="drafter: 99 is not a Drafter"):
        await read(drafter=99)


async def test_lenience_brings_its_rule() -> None:
    lossy = await read(lenience=0.5)
    assert (lossy.rule, lossy.lenience) == (Rule.TOKEN, 0.5)
    assert (await read(lenience=1.0)).rule is Rule.BLOCK
    assert (await read(lenience=1.0, rule="ACCEPTANCE_RULE_COUPLED")).rule is Rule.COUPLED
    options = lossy.sequence_options(64)
    assert (options.rule, options.lenience, options.vocab_size, options.logprobs) == (Rule.TOKEN, 0.5, 64, None)


async def test_the_number_of_outputs() -> None:
    several = await read(n=32)
    assert (several.n, several.best_of) == (32, 32)
    best = await read(n=2, best_of=5)
    assert (best.n, best.best_of) == (2, 5)
    assert best.sequence_options(64).logprobs == 0, "without logprobs nobody knows the best"
    assert (await read(best_of=3)).n == 1


async def test_logprobs_of_zero_are_asked_for() -> None:
    request = await read(logprobs=0, prompt_logprobs=20)
    assert (request.logprobs, request.prompt_logprobs, request.wants_prompt) == (0, 20, True)
    assert request.sequence_options(64).logprobs == 0


@pytest.mark.parametrize("fields", [{"echo": True}, {"prompt_logprobs": 0}])
async def test_nothing_but_the_prompt_may_be_wanted(fields: dict[str, object]) -> None:
    assert (await read(None, max_tokens=0, **fields)).max_tokens == 0


async def test_an_echo_is_the_prompt_as_it_was_sent_or_as_its_tokens_read() -> None:
    text = "<|endoftext|>a b"
    assert (await read(byte_level(), text=text, echo=True)).prompt_text == text
    ids = byte_level().encode("a b")
    assert (await read(byte_level(), token_ids={"ids": ids}, echo=True)).prompt_text == "a b"
    assert (await read(byte_level(), text="a b")).prompt_text == ""
    assert (await read(None, echo=True)).prompt_text == ""


async def test_a_pair_that_holds_fewer_sequences_gives_fewer_outputs() -> None:
    target = model_info(max_num_seqs=4)
    message = pb.GenerateTokensRequest(token_ids={"ids": [1]}, n=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidFieldError, match="n: is 5; it must be between 1 and 4"):
        await RequestReader(config=CONFIG, target=target, tokenizer=None).read(message)


async def test_a_chat_becomes_tokens() -> None:
    request = await read(byte_level(), chat={"messages": [{"role": "user", "content": "a"}]})
    assert list(request.prompt_ids) == byte_level().encode_chat([{"role": "user", "content": "a"}])


def test_a_message_of_the_developer_is_one_of_the_system() -> None:
    messages = read_messages([pb.ChatMessage(role=role) for role in ROLES])
    assert [message["role"] for message in messages] == ["system", "system", "user", "assistant", "tool"]
    with pytest.raises(InvalidFieldError, match="'narrator'; it must be one of system, developer, user"):
        read_messages([pb.ChatMessage(role="narrator")])


LAST = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


async def test_a_chat_may_end_with_its_last_message() -> None:
    request = await read(byte_level(), chat={"messages": LAST["messages"][1:], "continue_final_message": True})
    assert request.prompt_ids == tuple(byte_level().encode("# assistant: b"))
    request = await read(byte_level(), chat={"messages": LAST["messages"][:1], "add_generation_prompt": False})
    assert request.prompt_ids == tuple(byte_level().encode("# user: a\n"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message: cannot be combined"),
        (
            {"continue_final_message": True, "messages": LAST["messages"][:1]},
            "continue_final_message: needs a last message of the assistant; its role is 'user'",
        ),
        ({"continue_final_message": True, "messages": []}, "messages count: is 0"),
        ({"chat_template_kwargs": "[1]"}, "chat_template_kwargs: is not a JSON object"),
        ({"chat_template_kwargs": "{"}, "chat_template_kwargs: is not JSON"),
        ({"chat_template_kwargs": "[" * 16000}, "chat_template_kwargs: is not JSON"),
        ({"chat_template_kwargs": '{"tools": []}'}, "chat_template_kwargs: sets tools"),
        (
            {"chat_template_kwargs": '{"x": ' + "[" * 64 + "]" * 64 + "}"},
            "chat_template_kwargs: has more than 64 levels",
        ),
        ({"tools": ["[" * 65 + "]" * 65]}, "tools[0]: has more than 64 levels"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[" * 65 + "]" * 65}]}]},
            "messages[0].tool_calls[0].arguments: has more than 64 levels",
        ),
        ({"chat_template_kwargs": '{"x": "' + "y" * 16384 + '"}'}, "chat_template_kwargs length: is 16393; it must be"),
    ],
)
async def test_refused_layouts_of_a_chat(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        await read(byte_level(), chat={**LAST, **fields})
    assert caught.value.message.startswith(f"chat.{message}")


async def test_what_a_template_makes_of_a_short_chat_is_bounded_before_it_is_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = TokenizerFiles(
        tokenizer_json=byte_level().as_json().encode(), chat_template="{{ x * n }}", bos_token="", eos_token=""
    )
    tokenizer = Tokenizer(files)
    monkeypatch.setattr(tokenizer, "encode", None)
    with pytest.raises(PromptTooLongError, match="chat: has 100000 characters; at most"):
        await read(tokenizer, chat={**LAST, "chat_template_kwargs": '{"x": "y", "n": 100000}'})


async def test_more_tokens_than_fit_are_cut_to_what_fits() -> None:
    assert (await read(max_tokens=1000)).max_tokens == 7


async def test_the_longest_prompt_leaves_one_token() -> None:
    assert (await read(token_ids={"ids": [1] * 9})).max_tokens == 1
    with pytest.raises(PromptTooLongError) as caught:
        await read(token_ids={"ids": [1] * 10})
    assert caught.value.metadata == {"field": "prompt", "length": "10", "limit": "9", "unit": "tokens"}


@pytest.mark.parametrize(
    "fields",
    [{"text": "x" * 100_000}, {"chat": {"messages": [{"role": "user", "content": "x" * 100_000}]}}],
)
async def test_a_text_of_too_many_characters_is_too_long_a_prompt(fields: dict[str, object]) -> None:
    with pytest.raises(PromptTooLongError, match="has 100000 characters; at most") as caught:
        await read(byte_level(), **fields)
    (field,) = fields
    found = caught.value.metadata
    assert (found["field"], found["length"], found["unit"]) == (field, "100000", "characters")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_ids": {"ids": []}}, "prompt: holds no token"),
        ({"token_ids": {"ids": [1, 4096]}}, "token_ids: holds 4096; ids are below 4096"),
        ({"max_tokens": 0}, "max_tokens: is 0; it must be between 1"),
        ({"num_speculative_tokens": 17}, "num_speculative_tokens: is 17; it must be between 0 and 16"),
        ({"stop_strings": ["x"] * 17}, "stop_strings: has 17 entries; at most 16"),
        ({"stop_strings": ["x", ""]}, r"stop_strings\[1\] length: is 0; it must be between 1 and 256"),
        ({"stop_strings": ["x" * 257]}, r"stop_strings\[0\] length: is 257"),
        ({"sampling": {"stop_token_ids": [1] * 65}}, "sampling.stop_token_ids: has 65 entries; at most 64 are allowed"),
        ({"sampling": {"stop_token_ids": [5000]}}, "sampling.stop_token_ids: holds 5000; ids are below 4096"),
        ({"sampling": {"temperature": float("nan")}}, "sampling.temperature: is nan"),
        ({"sampling": {"top_p": 0.0}}, "sampling.top_p: is 0;"),
        ({"sampling": {"banned_token_ids": [4096]}}, "sampling.banned_token_ids: holds 4096; ids are below 4096"),
        ({"sampling": {"logit_bias": {4096: 1.0}}}, "sampling.logit_bias: holds 4096; ids are below 4096"),
        ({"sampling": {"min_p": 1.5}}, "sampling.min_p: is 1.5; it must be between 0.0 and 1.0"),
        ({"sampling": {"min_tokens": 5}, "max_tokens": 4}, "sampling.min_tokens: is 5; at most 4 tokens fit"),
        ({"sampling": {"min_tokens": 8}}, "sampling.min_tokens: is 8; at most 7 tokens fit"),
        ({"sampling": {"allowed_token_ids": [0], "min_tokens": 1}}, "sampling.allowed_token_ids: leaves no token"),
        ({"lenience": 0.0}, "lenience: is 0; it must be above 0 and at most 1"),
        ({"lenience": 1.5}, "lenience: is 1.5; it must be above 0 and at most 1"),
        ({"lenience": float("nan")}, "lenience: is nan"),
        ({"lenience": 0.5, "rule": "ACCEPTANCE_RULE_BLOCK"}, "lenience: is 0.5; below 1 it requires the token rule"),
        ({"lenience": 0.5, "rule": "ACCEPTANCE_RULE_COUPLED"}, "lenience: is 0.5; below 1 it requires the token rule"),
        ({"n": 0}, "n: is 0; it must be between 1 and 32"),
        ({"n": 33}, "n: is 33; it must be between 1 and 32"),
        ({"n": 3, "best_of": 2}, "best_of: is 2; it must be between 3 and 32"),
        ({"best_of": 33}, "best_of: is 33; it must be between 1 and 32"),
        ({"logprobs": 21}, "logprobs: is 21; it must be between 0 and 20"),
        ({"prompt_logprobs": 21}, "prompt_logprobs: is 21; it must be between 0 and 20"),
        ({"rule": 99}, "rule: 99 is not an AcceptanceRule"),
        ({"encoding": 99}, "encoding: 99 is no"),
        ({"chat": {"messages": []}}, "chat.messages count: is 0"),
        ({"chat": {"messages": [{"role": "root", "content": "x"}]}}, r"chat.messages\[0\].role: is 'root'"),
        ({"text": ""}, "prompt: holds no token"),
    ],
)
async def test_values_outside_their_limits_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidFieldError, match=message):
        await read(byte_level(), **fields)


async def test_a_request_without_a_prompt_is_refused() -> None:
    with pytest.raises(InvalidFieldError, match="prompt: is missing"):
        await RequestReader(config=CONFIG, target=model_info(), tokenizer=None).read(pb.GenerateTokensRequest())


@pytest.mark.parametrize(
    "fields", [{"text": "a"}, {"chat": {"messages": [{"role": "user", "content": "a"}]}}, {"stop_strings": ["a"]}]
)
async def test_without_a_tokenizer_text_is_not_supported(fields: dict[str, object]) -> None:
    with pytest.raises(NotSupportedError, match="the target has no tokenizer"):
        await read(None, **fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"target_addresses": ("nowhere",)},
        {"target_addresses": ("dns:host:0",)},
        {"draft_addresses": ("host:1", "host:99999")},
        {"num_speculative_tokens": 17},
        {"num_speculative_tokens": -1},
        {"max_num_speculative_tokens": 65},
        {"max_requests": 0},
        {"draft_timeout": 0.0},
        {"target_timeout": float("nan")},
        {"served_model_names": ("a", "")},
        {"served_model_names": ("a", "b", "a")},
        {"served_model_names": ("a" * 257,)},
        {"served_model_names": tuple(map(str, range(17)))},
    ],
)
def test_a_config_outside_its_limits_is_refused(changes: dict[str, object]) -> None:
    values: dict[str, object] = {"server": ServerConfig(port=0), "target_addresses": ("a:1",)}
    with pytest.raises(InvalidFieldError, match=next(iter(changes)).removesuffix("_addresses").removesuffix("s")):
        CoordinatorConfig(**{**values, **changes})  # type: ignore[arg-type]
