// @ts-check
/**
 * Text that a person can trust: what is invisible becomes visible. The rules are those of `crates/types/src/visible.rs`. The cases of
 * `tests/browser/visible.json` are checked against both, and so is every character there is, so the two are held equal.
 */

/** White space other than the plain blank: Unicode's `White_Space`, which Rust's `char::is_whitespace` knows. */
const BLANK = [
  [0x0009, 0x000d], [0x0085, 0x0085], [0x00a0, 0x00a0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029], [0x202f, 0x202f],
  [0x205f, 0x205f], [0x3000, 0x3000],
];

/** Control characters. */
const CONTROL = [[0x0000, 0x001f], [0x007f, 0x009f]];

/** Format characters, fillers that render as nothing, variation selectors, tags, private use. */
const HIDDEN = [
  [0x00ad, 0x00ad], [0x034f, 0x034f], [0x0600, 0x0605], [0x061c, 0x061c], [0x06dd, 0x06dd], [0x070f, 0x070f], [0x0890, 0x0891],
  [0x08e2, 0x08e2], [0x115f, 0x1160], [0x17b4, 0x17b5], [0x180b, 0x180f], [0x200b, 0x200f], [0x202a, 0x202e], [0x2060, 0x206f],
  [0x2800, 0x2800], [0x3164, 0x3164], [0xe000, 0xf8ff], [0xfe00, 0xfe0f], [0xfeff, 0xfeff], [0xffa0, 0xffa0], [0xfff0, 0xfffb],
  [0x110bd, 0x110bd], [0x110cd, 0x110cd], [0x13430, 0x1343f], [0x1bca0, 0x1bca3], [0x1d173, 0x1d17a], [0xe0000, 0xe0fff],
  [0xf0000, 0x10ffff],
];

/** Halves of a character. Rust's strings have none; a script's may. */
const HALF = [[0xd800, 0xdfff]];

const RANGES = [...BLANK, ...CONTROL, ...HIDDEN, ...HALF];

/**
 * Whether a character cannot be told from nothing, from a plain blank, or from its neighbours.
 * @param {number} point
 */
export function isHidden(point) {
  // Nearly all text is this.
  if (point >= 0x20 && point < 0x7f) return false;
  return RANGES.some(([first, last]) => point >= first && point <= last);
}

/**
 * A piece of text: shown as it is, or a marker that stands for something hidden.
 * @typedef {{ text: string, marker: boolean }} Piece
 */

/**
 * Cuts text into what is shown as it is and what stands as a marker.
 * @param {string} text
 * @param {{ block?: boolean, escaped?: boolean }} [how] `block` keeps line breaks and tabs. `escaped` is for text that went through
 *   this once: its markers are markers.
 * @returns {Piece[]}
 */
export function pieces(text, { block = false, escaped = false } = {}) {
  /** @type {Piece[]} */
  const found = [];
  /** @type {Piece | undefined} */
  let last;
  let at = 0;
  for (const c of text) {
    at += c.length;
    const point = c.codePointAt(0) ?? 0;
    const kept = block && (c === '\n' || c === '\t');
    const fakesAnEscape = !escaped && c === '<' && text.startsWith('U+', at);
    const marker = !kept && (fakesAnEscape || isHidden(point));
    if (!last || last.marker !== marker) {
      last = { text: '', marker };
      found.push(last);
    }
    last.text += marker ? `<U+${point.toString(16).toUpperCase().padStart(4, '0')}>` : c;
    // A marked line break ends its piece, so that the line can be shown to end there.
    if (marker && c === '\n') last = undefined;
  }
  return found;
}

/**
 * Makes one line of text visible.
 * @param {string} text
 */
export function visible(text) {
  return pieces(text).map((piece) => piece.text).join('');
}

/**
 * Makes a block of text visible, keeping its line breaks and tabs.
 * @param {string} text
 */
export function visibleBlock(text) {
  return pieces(text, { block: true }).map((piece) => piece.text).join('');
}
