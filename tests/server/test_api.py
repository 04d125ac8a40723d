"""What the API answers, in the shapes that clients know."""

from toy_server import ask, toy_llm

from outrider import SamplingParams

MESSAGES = [{"role": "user", "content": "hi"}]


def test_a_chat_is_answered_as_generate_does():
    async def test(client):
        reply = await client.chat()
        assert reply.status_code == 200
        return reply.json()

    (output,) = toy_llm().generate([MESSAGES], SamplingParams(max_tokens=8))
    document = ask(test)
    choice = document["choices"][0]
    assert document["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": output.text}
    assert choice["finish_reason"] == "length"
    assert document["usage"]["completion_tokens"] == 8
    assert choice["speculation"] == document["speculation"] == output.speculation.to_json()
