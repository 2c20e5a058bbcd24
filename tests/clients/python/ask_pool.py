"""Asks a pool through a proxy with the OpenAI client for Python: the address and the model's name are its arguments."""

import sys

import openai

address, model = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=60)
messages = [{"role": "user", "content": "Hello"}]

assert model in [known.id for known in client.models.list()]

answer = client.chat.completions.create(model=model, messages=messages, max_tokens=8)
assert answer.model == model, answer
assert answer.choices[0].message.content, answer
assert answer.usage.completion_tokens == 8, answer

stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=8, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), chunks
assert chunks[-1].usage.completion_tokens == 8, chunks
assert all(chunk.model == model for chunk in chunks), chunks

try:
    client.chat.completions.create(model="nobody", messages=messages)
    raise AssertionError("a model that there isn't has answered")
except openai.NotFoundError:
    pass

# The picker can't read this body, and says so.
try:
    client.post("/chat/completions", cast_to=object, body={"model": "", "messages": messages})
    raise AssertionError("a request without a model was answered")
except openai.BadRequestError as error:
    assert "`model` is empty" in error.message, error

print("the client for Python is served")
