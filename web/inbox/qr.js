// @ts-check
/**
 * A QR code, drawn from its modules: dark on white whatever the theme, in a margin of four modules, as readers want it.
 *
 * Does not: know what the code says. It takes rows of `0` and `1`.
 */

/** How wide the margin is, in modules, and a module, in pixels. */
const MARGIN = 4;
const PIXELS = 5;

/**
 * Draws a code into an `svg` element.
 * @param {SVGSVGElement} svg
 * @param {string[]} modules a row of `0` and `1` for each line
 */
export function draw(svg, modules) {
  const side = modules.length + 2 * MARGIN;
  svg.setAttribute('viewBox', `0 0 ${side} ${side}`);
  for (const way of ['width', 'height']) svg.setAttribute(way, `${side * PIXELS}`);
  const ground = part(svg, 'rect', { width: `${side}`, height: `${side}`, fill: '#ffffff' });
  const code = part(svg, 'path', { d: modules.map(line).join(''), fill: '#000000' });
  svg.replaceChildren(ground, code);
}

/**
 * Leaves nothing of a code in an `svg` element.
 * @param {SVGSVGElement} svg
 */
export function erase(svg) {
  svg.replaceChildren();
}

/**
 * The dark modules of a row, each run of them as one stroke.
 * @param {string} row
 * @param {number} y
 */
function line(row, y) {
  return [...row.matchAll(/1+/g)].map(({ 0: { length }, index }) => `M${index + MARGIN} ${y + MARGIN}h${length}v1h-${length}z`).join('');
}

/**
 * @param {SVGSVGElement} svg
 * @param {string} name
 * @param {Record<string, string>} attributes
 */
function part(svg, name, attributes) {
  const made = document.createElementNS(svg.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
