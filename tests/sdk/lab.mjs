/**
 * What the clients in JavaScript share. `PALYRA_URL` is where the API begins, `PALYRA_TOKEN` the key, `PALYRA_MODEL` the model, and
 * `PALYRA_SDK` is where `scripts/setup` put the packages. Its Node runs these scripts: the packages want one that is newer than Debian's.
 */
import { createRequire } from 'node:module';

export const URL_ = need('PALYRA_URL');
export const TOKEN = need('PALYRA_TOKEN');
export const MODEL = need('PALYRA_MODEL');
export const PROMPT = process.env.PALYRA_PROMPT ?? 'say hi';
export const require = createRequire(`${need('PALYRA_SDK')}/`);

let attempts = 0;

/** Requests as they are, counted. */
export function counted(...request) {
  attempts += 1;
  return fetch(...request);
}

export const tried = () => attempts;

/** The tool that this side has. */
export const weather = ({ city }) => `sunny in ${city}`;

export const PLACE = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };

/** Ends with what is wrong, unless it holds. */
export function check(holds, what, found) {
  if (!holds) throw new Error(`${what}: ${JSON.stringify(found)}`);
}

/** Runs the case that the command line names, and prints what it saw. */
export async function run(cases) {
  const wanted = cases[process.argv[2]];
  if (wanted === undefined || process.argv.length !== 3) {
    console.error(`usage: ${Object.keys(cases).join(' | ')}`);
    process.exit(2);
  }
  try {
    console.log(JSON.stringify(await wanted()));
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

/** A variable of the environment. */
export function need(name) {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}
