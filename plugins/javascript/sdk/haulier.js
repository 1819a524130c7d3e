// The SDK of Haulier plugins in JavaScript: one file without dependencies, copied into each plugin.
//
// A plugin's module imports it and exports what `plugin` returns, as `transformer`:
//
//     import { plugin, deliver } from "./sdk/haulier.js";
//
//     export const transformer = plugin({
//       name: "shop", version: "0.1.0", eventTypes: ["order.*"], needs: ["payload"],
//       settings: { topic: "orders" },
//       event(event, settings) {
//         return deliver({ topic: settings.topic });
//       },
//     });
//
// It takes care of batches, settings and UTF-8, tells the host which event is worked on, and reads
// JSON without changing a byte of it. It never does I/O, never keeps anything from one event to the
// next, and never hides a bug: an exception that is no verdict is logged and thrown on, so that the
// host sees a trap and sets that one event aside.
//
// It runs on QuickJS, where JavaScript is interpreted, and a loop over bytes costs 0.2 µs a byte.
// So everything here is made of built-in functions that work on whole strings.

import host from "haulier:relay/host@0.1.0";

// ---- The plugin ---------------------------------------------------------------------------------

/**
 * Makes the component's export of a description:
 *
 * - `name`, `version`, `eventTypes`: the manifest, as in wit/relay.wit.
 * - `needs`: which of "payload", "headers" and "attributes" you read. What is not named is not
 *   handed over, which saves time.
 * - `settings`: every setting with its default. The default's type is the setting's type: a text, a
 *   number, a boolean or a list of texts. Unknown names and other types are refused.
 * - `configure(settings)`: optional; what it returns is handed to `event` in place of the settings.
 *   An Error thrown here refuses the settings, and its message is shown to the operator.
 * - `event(event, settings)`: decides one event, and returns `deliver(…)`, `fanOut(…)`, `drop(…)`,
 *   `reject(…)` or `retry(…)`. The last two may be thrown as well.
 *
 * An event has `id`, `aggregateType`, `aggregateId`, `eventType` (strings), `headers` (pairs of a
 * name and a Uint8Array or null), `payload` (a Uint8Array or null) and `attributes` (pairs of
 * strings).
 */
export function plugin(description) {
  const { name, version, eventTypes = [], needs = [], settings = {} } = description;
  for (const need of needs) {
    if (!NEEDS.includes(need)) throw new Error(`unknown need "${need}"`);
  }
  let state;
  return {
    describe() {
      const flags = Object.fromEntries(NEEDS.map((need) => [need, needs.includes(need)]));
      return { name, version, eventTypes, needs: flags };
    },
    configure(text) {
      try {
        const checked = checkSettings(settings, text);
        state = description.configure ? description.configure(checked) : checked;
      } catch (error) {
        // Thrown strings are the error of this function's result; anything else would be a trap.
        throw String(error?.message ?? error);
      }
    },
    transform(events) {
      return events.map((event, index) => {
        host.enter(index);
        return decide(description, event, state);
      });
    },
  };
}

const NEEDS = ["payload", "headers", "attributes"];

function decide(description, event, state) {
  let outcome;
  try {
    outcome = description.event(event, state);
    if (!(outcome instanceof Outcome)) {
      throw new Error(`event() returned ${outcome}, not deliver(), fanOut(), drop(), reject() or retry()`);
    }
  } catch (thrown) {
    if (!(thrown instanceof Outcome)) {
      log.error(`${thrown}\n${thrown?.stack ?? ""}`);
      throw thrown;
    }
    outcome = thrown;
  }
  const failed = outcome.tag === "reject" || outcome.tag === "retry";
  return { tag: failed ? "err" : "ok", val: outcome };
}

/** The settings in `text`, with defaults for what is absent. */
function checkSettings(defaults, text) {
  const given = JSON.parse(text);
  if (kindOf(given) !== "an object") throw new Error("settings must be an object");
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaults, name)) {
      const known = Object.keys(defaults).join(", ") || "none";
      throw new Error(`unknown setting "${name}"; known: ${known}`);
    }
    const wanted = kindOf(defaults[name]);
    if (kindOf(value) !== wanted) throw new Error(`setting "${name}" must be ${wanted}`);
  }
  return { ...defaults, ...given };
}

function kindOf(value) {
  if (Array.isArray(value)) {
    return value.every((item) => typeof item === "string") ? "a list of strings" : "a list";
  }
  return value === null ? "null" : typeof value === "object" ? "an object" : `a ${typeof value}`;
}

// ---- Outcomes -----------------------------------------------------------------------------------

/** What the functions below make. */
class Outcome {
  constructor(tag, val) {
    this.tag = tag;
    this.val = val;
  }
}

/**
 * Publishes one record. What is left out is filled in from the route, else from the row:
 *
 * - `topic`: a string.
 * - `key`: a string or bytes; `null` is no key at all, on purpose.
 * - `payload`: a string or bytes; `null` is a tombstone. Left out, it is not copied: prefer that.
 * - `headers`: pairs of a name and a string, bytes or `null`, in place of the row's own.
 * - `partition`, `timestampMs`: numbers.
 */
export function deliver(fields = {}) {
  return new Outcome("deliver", delivery(fields));
}

/** Publishes several records in this order; each is described as for `deliver`. */
export function fanOut(list) {
  return new Outcome("fan-out", list.map(delivery));
}

/** Publishes nothing, on purpose; the text says why. */
export function drop(why) {
  return new Outcome("drop", why);
}

/** This event will never work; say what was expected and what was found. May be thrown. */
export function reject(why) {
  return new Outcome("reject", why);
}

/** It may work later though nothing about the event changes, which is rare. May be thrown. */
export function retry(why) {
  return new Outcome("retry", why);
}

const FIELDS = ["topic", "key", "payload", "headers", "partition", "timestampMs"];

function delivery(fields) {
  // A misspelt field would be ignored in silence.
  for (const name in fields) {
    if (!FIELDS.includes(name)) throw new Error(`a delivery has no field "${name}"`);
  }
  const { topic = null, key, payload, headers, partition = null, timestampMs = null } = fields;
  return {
    topic,
    key: given(key, DEFAULT, NULL),
    payload: given(payload, UNCHANGED, TOMBSTONE),
    headers: headers ? headers.map(([name, value]) => [name, value === null ? null : toBytes(value)]) : null,
    partition,
    timestampMs,
  };
}

const [DEFAULT, NULL, UNCHANGED, TOMBSTONE] =
  ["default", "null", "unchanged", "tombstone"].map((tag) => ({ tag }));

function given(value, absent, none) {
  if (value === undefined) return absent;
  return value === null ? none : { tag: "bytes", val: toBytes(value) };
}

// ---- Events, texts and the log ------------------------------------------------------------------

/** The host's log, under the plugin's name: `log.info("…")`. */
export const log = Object.fromEntries(
  ["debug", "info", "warn", "error"].map((level) => [level, (text) => host.log(level, String(text))]),
);

/** An attribute of an event, or undefined. The manifest must need "attributes". */
export function attribute(event, name) {
  return event.attributes.find((pair) => pair[0] === name)?.[1];
}

/** The UTF-8 bytes of a string. Half a surrogate pair, which JSON can hold, becomes U+FFFD. */
export function encode(text) {
  const binary = isAscii(text) ? text : unescape(encodeURIComponent(text.toWellFormed()));
  return Uint8Array.fromBase64(btoa(binary));
}

/** The string that UTF-8 bytes stand for. Throws an Error if they are not UTF-8. */
export function decode(bytes) {
  return fromBinary(toBinary(bytes));
}

/** Strings (as UTF-8) and bytes, one behind the other, as bytes. */
export const concat = (...parts) => join(parts);

function join(parts) {
  const list = parts.map(toBytes);
  const whole = new Uint8Array(list.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of list) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function toBytes(value) {
  if (value instanceof Uint8Array) return value;
  if (typeof value === "string") return encode(value);
  throw new Error(`expected a string or bytes, found ${kindOf(value)}`);
}

// A "binary" string has one character per byte. QuickJS has no TextDecoder; base64 is its fastest
// way from bytes to such a string, and the escape functions are its fastest UTF-8 codec.

const toBinary = (bytes) => atob(bytes.toBase64());

function fromBinary(binary) {
  return isAscii(binary) ? binary : decodeURIComponent(escape(binary));
}

const isAscii = (text) => all(ASCII, text);

const ASCII = /[\0-\x7f]*/y;
const WINDOW = 4096;

/** Whether the pattern matches all of the text. */
function all(pattern, text) {
  let at = 0;
  for (let from = -1; at < text.length && at > from; at = skip(pattern, text, at)) from = at;
  return at === text.length;
}

// Behind what `pattern` matches at `at`, or a part of that in a long text: QuickJS's regular expressions
// take memory for each character they run over. Patterns are sticky and may match nothing.
function skip(pattern, text, at) {
  if (text.length <= WINDOW) {
    pattern.lastIndex = at;
    pattern.test(text);
    return pattern.lastIndex;
  }
  pattern.lastIndex = 0;
  pattern.test(text.slice(at, at + WINDOW));
  return at + pattern.lastIndex;
}

// ---- JSON ---------------------------------------------------------------------------------------

/** The event's payload as `Json`. Throws a rejection if there is none or it is not JSON. */
export function json(event) {
  const found = event.payload && parse(event.payload);
  if (!found) throw reject("payload is not JSON");
  return found;
}

/** Bytes as `Json`, or undefined if they are not JSON in UTF-8, or nested more than 128 deep. */
export function parse(bytes) {
  const text = toBinary(bytes);
  if (tooDeep(text)) return undefined;
  try {
    const parsed = JSON.parse(fromBinary(text));
    return new Json({ bytes, text }, skipSpace(text, 0), text.trimEnd().length, parsed);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof URIError) return undefined;
    throw error;
  }
}

/** A string (or anything else that JSON can hold) as JSON text. */
export const quote = JSON.stringify;

/** A value in a JSON document, with the text that stands for it: numbers keep all digits there. */
class Json {
  constructor(source, start, end, parsed, parent, name) {
    this.source = source;
    // Where the value is; -1 for one that `get` found, until somebody asks.
    this.start = start;
    this.end = end;
    this.parsed = parsed;
    this.parent = parent;
    this.name = name;
  }

  /** The value as JavaScript has it, where numbers lose digits (12345678901234567890, 1.10). */
  get value() {
    if (this.parsed === undefined) this.parsed = JSON.parse(this.raw);
    return this.parsed;
  }

  /** The JSON text of the value, exactly as it stands in the document. */
  get raw() {
    this.locate();
    return fromBinary(this.source.text.slice(this.start, this.end));
  }

  /** The same as bytes. */
  get bytes() {
    this.locate();
    return this.source.bytes.subarray(this.start, this.end);
  }

  /** The value at a path of names, `get("customer", "id")`, or undefined. */
  get(...path) {
    let found = this;
    for (const name of path) {
      const value = found.value;
      // With a name given twice the last counts, as for JSON.parse.
      if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
      if (!Object.hasOwn(value, name)) return undefined;
      found = new Json(this.source, -1, -1, value[name], found, name);
    }
    return found;
  }

  /** The text at a path: a string's content, or a number's digits as written; else undefined. */
  text(...path) {
    const found = this.get(...path);
    const kind = typeof found?.value;
    return kind === "string" ? found.value : kind === "number" ? found.raw : undefined;
  }

  /** The elements of the array at a path, or undefined if there is no array. */
  items(...path) {
    const found = this.get(...path);
    if (!found || !Array.isArray(found.value)) return undefined;
    found.locate();
    const { text } = this.source;
    let at = skipSpace(text, found.start + 1);
    return found.value.map((value) => {
      const item = new Json(this.source, at, endOfValue(text, at), value);
      // Behind the comma; behind the bracket after the last one, where nobody looks.
      at = skipSpace(text, skipSpace(text, item.end) + 1);
      return item;
    });
  }

  /** The values of all members with one of these names (a Set), at any depth; not those in another. */
  named(names) {
    this.locate();
    const { text } = this.source;
    const found = [];
    let at = skip(TO_NAME, text, this.start);
    while (at < this.end) {
      const nameEnd = text.charCodeAt(at) === QUOTE ? endOfString(text, at) : at;
      const colon = skipSpace(text, nameEnd);
      if (nameEnd === at || text.charCodeAt(colon) !== COLON) {
        // The end of a window, or a string that was cut off by it.
        at = skip(TO_NAME, text, nameEnd);
        continue;
      }
      const name = nameAt(this.source, at, nameEnd);
      at = skipSpace(text, colon + 1);
      if (names.has(name)) {
        found.push(new Json(this.source, at, endOfValue(text, at)));
        at = found.at(-1).end;
      }
      at = skip(TO_NAME, text, at);
    }
    return found;
  }

  /** The whole document with these values (in their order) replaced by JSON; all else as it was. */
  replace(values, replacement) {
    const { bytes } = this.source;
    const [parts, instead] = [[], toBytes(replacement)];
    let from = 0;
    for (const value of values) {
      value.locate();
      parts.push(bytes.subarray(from, value.start), instead);
      from = value.end;
    }
    return join([...parts, bytes.subarray(from)]);
  }

  locate() {
    if (this.start >= 0) return;
    this.parent.locate();
    const { text } = this.source;
    let at = skipSpace(text, this.parent.start + 1);
    for (;;) {
      const nameEnd = endOfString(text, at);
      const start = skipSpace(text, skipSpace(text, nameEnd) + 1);
      const end = endOfValue(text, start);
      if (nameAt(this.source, at, nameEnd) === this.name) [this.start, this.end] = [start, end];
      at = skipSpace(text, end);
      if (text.charCodeAt(at) !== COMMA) return;
      at = skipSpace(text, at + 1);
    }
  }
}

// The scanner. It works on binary strings, and (but for `tooDeep`) on what JSON.parse has accepted.
// Its patterns have one way to match a text each: none can take long by trying others.

const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c];

/** Whatever is no bracket, strings as a whole. */
const TO_BRACKET = /[^"{}[\]]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"{}[\]]*)*/y;
/** Whatever is no member's name: a string that is a value has one of these marks behind it. */
const TO_NAME = /[^"]*(?:"[^"\\]*(?:\\.[^"\\]*)*"(?=\s*[,\]}])[^"]*)*/y;
/** A number, true, false or null. */
const SCALAR = /[-+.0-9a-zA-Z]*/y;
/** Neither escapes nor characters beyond ASCII: a string's content is what is written. */
const PLAIN = /[^\\\x80-\xff]*/y;

/** Deeper nesting would overflow the stack in JSON.parse: a trap, and not an exception. */
const MAX_DEPTH = 128;

function tooDeep(text) {
  // Most documents have too few brackets to be deep, whatever their order.
  if (countUpTo(text, "{") + countUpTo(text, "[") <= MAX_DEPTH) return false;
  let depth = 0;
  for (let at = toBracket(text, 0); at < text.length; at = toBracket(text, at + 1)) {
    depth += opens(text.charCodeAt(at)) ? 1 : -1;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

/** The next bracket at or behind `at` that is in no string; the text's length if there is none. */
function toBracket(text, at) {
  for (;;) {
    at = skip(TO_BRACKET, text, at);
    const code = text.charCodeAt(at);
    // A string that the window cuts off.
    if (code === QUOTE) at = endOfString(text, at);
    else if (!(at < text.length) || opens(code) || closes(code)) return at;
  }
}

function countUpTo(text, mark) {
  let [count, at] = [0, -1];
  while (count <= MAX_DEPTH && (at = text.indexOf(mark, at + 1)) >= 0) count++;
  return count;
}

/** Whether it is the code of `{` or `[`. */
const opens = (code) => code === 0x7b || code === 0x5b;
/** Whether it is the code of `}` or `]`. */
const closes = (code) => code === 0x7d || code === 0x5d;

function skipSpace(text, at) {
  for (;;) {
    const code = text.charCodeAt(at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return at;
    at++;
  }
}

/** Behind the string that begins at `at`; the text's length if it has no end. */
function endOfString(text, at) {
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return text.length;
    let backslashes = 0;
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return at + 1;
  }
}

/** Behind the value that begins at `at`. */
function endOfValue(text, at) {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return endOfString(text, at);
  if (!opens(first)) {
    SCALAR.lastIndex = at;
    SCALAR.test(text);
    return SCALAR.lastIndex;
  }
  let depth = 0;
  for (;;) {
    depth += opens(text.charCodeAt(at)) ? 1 : -1;
    at++;
    if (depth === 0) return at;
    at = toBracket(text, at);
  }
}

/** The content of the string between `start` and `end`, which include its quotes. */
function nameAt(source, start, end) {
  // Asked once per document.
  source.plain ??= all(PLAIN, source.text);
  if (source.plain) return source.text.slice(start + 1, end - 1);
  return JSON.parse(fromBinary(source.text.slice(start, end)));
}
