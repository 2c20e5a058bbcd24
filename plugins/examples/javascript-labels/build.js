// Builds the plugin: node build.js [folder to write it into] [folder of Pointsman's wit files]

import { componentize } from "@bytecodealliance/componentize-js";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const [out = here("dist"), wit = here("../../../wit/0.1.0")] = process.argv.slice(2);

const { component } = await componentize({
  sourcePath: here("policy.js"),
  witPath: wit,
  worldName: "metadata-propagator",
  // A policy is pure. What is switched off here isn't imported, and the host refuses a plugin that imports more than the log.
  disableFeatures: ["stdio", "random", "clocks", "http", "fetch-event"],
});
await mkdir(out, { recursive: true });
await writeFile(join(out, "javascript-labels.wasm"), component);
