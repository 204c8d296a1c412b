/**
 * Whether the page makes hidden characters visible by the rules of `crates/types/src/visible.rs`. Prints a line for each case of
 * `visible.json` that fails, then the ranges of all hidden characters, which the test that runs this compares with its own.
 */
import { readFile } from 'node:fs/promises';

import { load } from './page.mjs';

const { isHidden, pieces, visible, visibleBlock } = await load('visible.js');
const cases = JSON.parse(await readFile(new URL('visible.json', import.meta.url), 'utf8'));
let failures = 0;
for (const [show, all] of [[visible, cases.line], [visibleBlock, cases.block]]) {
  for (const [text, expected] of all) {
    if (show(text) === expected) continue;
    failures += 1;
    console.error(`FAILED: ${JSON.stringify(text)} is shown as ${JSON.stringify(show(text))}`);
  }
}
if (pieces('<U+202E>', { escaped: true }).some((piece) => piece.marker)) throw new Error('what was escaped is escaped again');

const ranges = [];
for (let point = 0; point <= 0x10ffff; point += 1) {
  // Rust's characters are whole.
  if (point >= 0xd800 && point <= 0xdfff) continue;
  if (!isHidden(point)) continue;
  const last = ranges.at(-1);
  if (last && last[1] === point - 1) last[1] = point;
  else ranges.push([point, point]);
}
console.log(JSON.stringify(ranges));
process.exit(failures === 0 ? 0 : 1);
