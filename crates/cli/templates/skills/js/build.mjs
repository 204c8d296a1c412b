// Makes skill.wasm from skill.js: a component that holds a JavaScript engine and the program.
import { readFile, writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const { component } = await componentize(await readFile("skill.js", "utf8"), {
  sourceName: "skill.js",
  witPath: "wit",
  worldName: "mine",
  // Without these the engine has no clock, no randomness, no streams and no network. Take one out of the list and it is there again, and
  // `palyra skills pack` says what skill.toml has to ask for.
  disableFeatures: ["clocks", "random", "stdio", "http", "fetch-event"],
});
await writeFile("skill.wasm", component);
