/** A module of the page, for scripts outside of a browser. Older Node takes a `.js` file that no package names for another kind of module. */
import { readFile } from 'node:fs/promises';

export async function load(name) {
  const source = await readFile(new URL(`../../web/inbox/${name}`, import.meta.url), 'utf8');
  return import(`data:text/javascript,${encodeURIComponent(source)}`);
}
