// The skill `{{id}}`: counts the words, lines and characters of a text.
//
// What the host offers is imported by name, such as `import { write } from "palyra:skill/log@1.0.0"`, and has to stand under `[capabilities]`.

export function run(tool, input) {
  if (tool !== "count") throw failure("no-such-tool", `there is no tool \`${tool}\``);
  const { text } = JSON.parse(input);
  if (typeof text !== "string") throw failure("bad-input", "`text` is a text");
  return JSON.stringify(count(text));
}

function count(text) {
  const words = text.split(/\s+/u).filter((word) => word !== "").length;
  const ended = text === "" || text.endsWith("\n");
  const lines = text.split("\n").length - (ended ? 1 : 0);
  return { words, lines, characters: [...text].length };
}

// What is thrown is what the caller is told.
function failure(code, message) {
  return { code, message };
}
