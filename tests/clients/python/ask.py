"""Asks a gateway with the OpenAI client for Python: the address and the model's name are its arguments."""

import sys

import openai

address, model = sys.argv[1:]
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=60)
messages = [{"role": "user", "content": "Hello"}]

names = [known.id for known in client.models.list()]
assert model in names, names
assert client.models.retrieve(model).id == model

answer = client.chat.completions.create(model=model, messages=messages)
assert answer.choices[0].message.content == "Hello there", answer
assert answer.usage.total_tokens == 4, answer

stream = client.chat.completions.create(
    model=model, messages=messages, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "Hello there", chunks
assert chunks[-1].usage.total_tokens == 4, chunks

vector = client.embeddings.create(model=model, input="Hello", encoding_format="float").data[0].embedding
assert vector == [0.5, -0.5], vector

try:
    client.chat.completions.create(model="nobody", messages=messages)
    raise AssertionError("a model that there isn't has answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

# What a backend says is wrong comes through as it is.
try:
    client.chat.completions.create(model=model, messages=[])
    raise AssertionError("a request without messages was answered")
except openai.BadRequestError as error:
    assert error.code == "no_messages", error

try:
    client.with_options(timeout=0.3).chat.completions.create(
        model=model, messages=[{"role": "user", "content": "slow"}]
    )
    raise AssertionError("an answer that never comes has come")
except openai.APITimeoutError:
    pass

# It goes on after all of that.
assert client.chat.completions.create(model=model, messages=messages).choices[0].message.content == "Hello there"
print("the client for Python is served")
