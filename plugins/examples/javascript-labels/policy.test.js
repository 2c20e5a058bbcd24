// The policy as an ordinary module: no Wasm is needed to test it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { metadataPropagation, plugin } from "./policy.js";

const cases = JSON.parse(readFileSync(new URL("../labels-cases.json", import.meta.url), "utf8"));

/** The image of an answer in JSON leaves these two out where they are empty. */
function image({ dropped, reasons, ...rest }) {
  return { ...rest, ...(dropped.length > 0 && { dropped }), ...(reasons.length > 0 && { reasons }) };
}

assert.ok(cases.length > 0, "there are no cases");
for (const { name, config, request, answer } of cases) {
  test(name, () => {
    plugin.configure(JSON.stringify(config));
    // A u64 is a BigInt; all else is as it is in JSON.
    const now = request.now === undefined ? undefined : BigInt(request.now);
    assert.deepEqual(image(metadataPropagation.propagate({ ...request, now })), answer);
  });
}

/** What is thrown at a configuration. */
function refusal(text) {
  try {
    plugin.configure(text);
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}

test("says what is wrong with a configuration", () => {
  assert.equal(refusal("{}"), undefined);
  assert.equal(refusal('{"label": "team"}'), undefined);
  assert.equal(refusal('{"lable": "team"}'), "the configuration doesn't fit: unknown field `lable`, expected `label`");
  assert.equal(refusal('{"label": 1}'), "the configuration doesn't fit: `label` must be a string");
  assert.equal(refusal('{"label": null}'), "the configuration doesn't fit: `label` must be a string");
  assert.equal(refusal("null"), "the configuration doesn't fit: it must be an object");
  assert.equal(refusal("[]"), "the configuration doesn't fit: it must be an object");
});

test("describes itself", () => {
  assert.deepEqual(plugin.describe().points, ["metadata-propagation"]);
});
