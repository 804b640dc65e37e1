"""A conversation as prompts: everything that was said, in order, in the format of the model."""

from command.generation.conversation import Conversation
from specpair.v1 import coordinator_service_pb2 as pb


def prompt_of(conversation: Conversation, question: str) -> pb.GenerateTokensRequest:
    request = pb.GenerateTokensRequest()
    conversation.ask(request, question)
    return request


def test_a_chat_holds_all_that_was_said() -> None:
    conversation = Conversation("Be brief.")
    conversation.add("What is 1 + 1?", "2")
    messages = prompt_of(conversation, "And 1 + 2?").chat.messages
    assert [(entry.role, entry.content) for entry in messages] == [
        ("system", "Be brief."),
        ("user", "What is 1 + 1?"),
        ("assistant", "2"),
        ("user", "And 1 + 2?"),
    ]


def test_a_question_counts_once_it_is_answered() -> None:
    conversation = Conversation()
    prompt_of(conversation, "Does this fail?")
    assert [entry.content for entry in prompt_of(conversation, "And now?").chat.messages] == ["And now?"]


def test_a_new_conversation_keeps_the_system_message_alone() -> None:
    for is_plain in (False, True):
        conversation = Conversation("Be brief.", is_plain=is_plain)
        conversation.add("a", "b")
        conversation.clear()
        assert prompt_of(conversation, "c") == prompt_of(Conversation("Be brief.", is_plain=is_plain), "c")


def test_a_plain_conversation_is_one_text() -> None:
    conversation = Conversation("# Notes", is_plain=True)
    conversation.add("def f():", "    return 1\n")
    conversation.add("def g():", "    return 2")
    expected = "# Notes\ndef f():\n    return 1\ndef g():\n    return 2\ndef h():\n"
    assert prompt_of(conversation, "def h():").text == expected
