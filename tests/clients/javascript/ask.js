// Asks a gateway with the OpenAI client for JavaScript: the address and the model's name are its arguments.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [address, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `http://${address}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "Hello" }];

const names = [];
for await (const known of client.models.list()) {
  names.push(known.id);
}
assert(names.includes(model), names.join());

const answer = await client.chat.completions.create({ model, messages });
assert.equal(answer.choices[0].message.content, "Hello there");
assert.equal(answer.usage.total_tokens, 4);

let text = "";
let total;
const options = { include_usage: true };
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true, stream_options: options })) {
  text += chunk.choices[0]?.delta.content ?? "";
  total = chunk.usage?.total_tokens ?? total;
}
assert.equal(text, "Hello there");
assert.equal(total, 4);

const vector = (await client.embeddings.create({ model, input: "Hello", encoding_format: "float" })).data[0].embedding;
assert.deepEqual(vector, [0.5, -0.5]);

const unknown = client.chat.completions.create({ model: "nobody", messages });
await assert.rejects(unknown, (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");

// What a backend says is wrong comes through as it is.
const empty = client.chat.completions.create({ model, messages: [] });
await assert.rejects(empty, (error) => error instanceof OpenAI.BadRequestError && error.code === "no_messages");

const slow = client.chat.completions.create({ model, messages: [{ role: "user", content: "slow" }] }, { timeout: 300 });
await assert.rejects(slow, OpenAI.APIConnectionTimeoutError);

// It goes on after all of that.
assert.equal((await client.chat.completions.create({ model, messages })).choices[0].message.content, "Hello there");
console.log("the client for JavaScript is served");
