/** Values as text for a person, in the manner of Node's `util.inspect`. Getters are not called; whatever a value does, the walk goes on. */
import { viewTag } from "./primordials.ts";

const maxDepth = 4;
const maxItems = 100;
const maxString = 10_000;
/** Characters of one inspected value; the log's own limit is smaller. */
const maxText = 65_536;
const lineWidth = 80;

interface Walk {
  seen: object[];
  circular: Map<object, number>;
  length: number;
}

export function inspect(value: unknown): string {
  return show(value, 0, { seen: [], circular: new Map(), length: 0 });
}

function show(value: unknown, depth: number, walk: Walk): string {
  if (walk.length > maxText) return "…";
  const text = showAny(value, depth, walk);
  walk.length += text.length;
  return text;
}

function showAny(value: unknown, depth: number, walk: Walk): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "number":
      return Object.is(value, -0) ? "-0" : String(value);
    case "bigint":
      return `${value}n`;
    case "symbol":
      return value.toString();
    case "function":
    case "object":
      return value === null ? "null" : showObject(value, depth, walk);
    default:
      return String(value);
  }
}

/** Quotes a string as Node does: single quotes unless it holds some. */
function quote(text: string): string {
  const cut = text.length > maxString ? `${text.slice(0, maxString)}…` : text;
  const mark = !cut.includes("'") ? "'" : !cut.includes('"') ? '"' : !cut.includes("`") ? "`" : "'";
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is escaped here
  const escaped = cut.replace(/[\\\n\r\t\b\f\v\0-\x1f\x7f]/g, (character) => {
    const known = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v" }[character];
    return known ?? `\\x${character.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`;
  });
  return mark === "'" ? `'${escaped.replaceAll("'", "\\'")}'` : mark + escaped + mark;
}

const isIdentifier = (key: string) => /^[A-Za-z_$][\w$]*$/.test(key);

function constructorName(value: object): string | null {
  for (let proto: object | null = value; proto !== null; proto = Object.getPrototypeOf(proto)) {
    const own = Object.getOwnPropertyDescriptor(proto, "constructor");
    if (
      own !== undefined &&
      typeof own.value === "function" &&
      typeof own.value.name === "string" &&
      own.value.name !== "" &&
      value instanceof own.value
    )
      return own.value.name;
  }
  return null;
}

/** `Name` or `Name [Tag]`, empty for a plain object. */
function prefixOf(value: object, usual: string, size?: number): string {
  const name = constructorName(value);
  let tag: unknown;
  try {
    tag = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  } catch {
    tag = undefined;
  }
  const shown = name ?? `[${usual}: null prototype]`;
  const sized = size === undefined ? shown : `${shown}(${size})`;
  return typeof tag === "string" && tag !== "" && tag !== name ? `${sized} [${tag}]` : sized;
}

function showObject(value: object, depth: number, walk: Walk): string {
  if (walk.seen.includes(value)) {
    if (!walk.circular.has(value)) walk.circular.set(value, walk.circular.size + 1);
    return `[Circular *${walk.circular.get(value)}]`;
  }
  walk.seen.push(value);
  let text: string;
  try {
    text = showKnown(value, depth, walk);
  } catch {
    text = "[value that cannot be shown]";
  }
  walk.seen.pop();
  const mark = walk.circular.get(value);
  return mark === undefined ? text : `<ref *${mark}> ${text}`;
}

const brands = [
  ["Map", Object.getOwnPropertyDescriptor(Map.prototype, "size")?.get],
  ["Set", Object.getOwnPropertyDescriptor(Set.prototype, "size")?.get],
  ["Date", Date.prototype.getTime],
  ["RegExp", Object.getOwnPropertyDescriptor(RegExp.prototype, "source")?.get],
  ["ArrayBuffer", Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength")?.get],
  ["WeakMap", WeakMap.prototype.has],
  ["WeakSet", WeakSet.prototype.has],
  ["WeakRef", WeakRef.prototype.deref],
  ["Number", Number.prototype.valueOf],
  ["String", String.prototype.valueOf],
  ["Boolean", Boolean.prototype.valueOf],
  ["BigInt", BigInt.prototype.valueOf],
  ["Symbol", Symbol.prototype.valueOf],
] as const;

/** The builtin kind of an object, by its internal slots and not by what it says of itself. */
function brandOf(value: object): string | null {
  if (Error.isError(value)) return "Error";
  if (viewTag(value) !== undefined) return "TypedArray";
  const proto = Object.getPrototypeOf(value) as object | null;
  if (proto === Object.prototype || proto === null) return null;
  for (const [name, method] of brands) {
    try {
      if (value === RegExp.prototype) return null;
      Reflect.apply(method as () => unknown, value, [value]);
      return name;
    } catch {}
  }
  return null;
}

function showKnown(value: object, depth: number, walk: Walk): string {
  if (typeof value === "function") return showFunction(value, depth, walk);
  if (Array.isArray(value)) return showArray(value, depth, walk);
  const brand = brandOf(value);
  const tooDeep = depth >= maxDepth;
  switch (brand) {
    case "Error":
      return showError(value as Error, depth, walk);
    case "TypedArray": {
      const array = value as Uint8Array;
      const prefix = prefixOf(value, "TypedArray", array.length);
      if (tooDeep) return `[${prefix}]`;
      const items: string[] = [];
      for (let index = 0; index < Math.min(array.length, maxItems); index++) items.push(String(array[index]));
      return wrap(`${prefix} `, "[", more(items, array.length), "]", true);
    }
    case "Map": {
      const map = value as Map<unknown, unknown>;
      const prefix = prefixOf(value, "Map", map.size);
      if (tooDeep) return `[${prefix}]`;
      const items: string[] = [];
      for (const [key, item] of Map.prototype.entries.call(map)) {
        if (items.length >= maxItems) break;
        items.push(`${show(key, depth + 1, walk)} => ${show(item, depth + 1, walk)}`);
      }
      return wrap(`${prefix} `, "{", [...more(items, map.size), ...properties(value, depth, walk)], "}");
    }
    case "Set": {
      const set = value as Set<unknown>;
      const prefix = prefixOf(value, "Set", set.size);
      if (tooDeep) return `[${prefix}]`;
      const items: string[] = [];
      for (const item of Set.prototype.values.call(set)) {
        if (items.length >= maxItems) break;
        items.push(show(item, depth + 1, walk));
      }
      return wrap(`${prefix} `, "{", [...more(items, set.size), ...properties(value, depth, walk)], "}");
    }
    case "Date": {
      const time = Date.prototype.getTime.call(value);
      return withProperties(Number.isNaN(time) ? "Invalid Date" : Date.prototype.toISOString.call(value), value, depth, walk);
    }
    case "RegExp":
      return withProperties(RegExp.prototype.toString.call(value), value, depth, walk);
    case "ArrayBuffer": {
      const bytes = new Uint8Array(value as ArrayBuffer, 0, Math.min((value as ArrayBuffer).byteLength, 50));
      const contents = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
      return `ArrayBuffer { [Uint8Contents]: <${contents}${(value as ArrayBuffer).byteLength > 50 ? " ..." : ""}>, [byteLength]: ${(value as ArrayBuffer).byteLength} }`;
    }
    case "WeakMap":
    case "WeakSet":
      return `${brand} { <items unknown> }`;
    case "WeakRef":
      return "WeakRef { <ref> }";
    case "Number":
    case "String":
    case "Boolean":
    case "BigInt":
    case "Symbol":
      return `[${brand}: ${show((value as { valueOf(): unknown }).valueOf(), depth, walk)}]`;
    default:
  }
  if (value instanceof Promise) return "Promise { <state unknown> }";
  const view = viewOfPlatform(value);
  if (view !== null && !tooDeep)
    return wrap(
      `${prefixOf(value, "Object")} `,
      "{",
      view.flatMap(([name, item]) => [`${name}: ${show(item, depth + 1, walk)}`]),
      "}",
    );
  const prefix = prefixOf(value, "Object");
  if (tooDeep) return `[${prefix}]`;
  return wrap(prefix === "Object" ? "" : `${prefix} `, "{", properties(value, depth, walk), "}");
}

/** Attributes that make or lock something when they are read. */
const untouched = new Set([
  "body",
  "signal",
  "searchParams",
  "currentTarget",
  "srcElement",
  "returnValue",
  "closed",
  "ready",
  "desiredSize",
]);
const platformClasses = new Map<object, string>();

/** Tells of a class of the kit, whose state is private: its attributes are shown instead, its entries when it is a list of pairs. */
export function addPlatformClass(prototype: object, name: string): void {
  platformClasses.set(prototype, name);
}

export const isPlatformObject = (value: object): boolean => {
  for (let proto = Object.getPrototypeOf(value) as object | null; proto !== null; proto = Object.getPrototypeOf(proto) as object | null) {
    if (platformClasses.has(proto)) return true;
  }
  return false;
};

function viewOfPlatform(value: object): [string, unknown][] | null {
  if (!isPlatformObject(value)) return null;
  const name = platformClasses.get(Object.getPrototypeOf(value) as object);
  if (name === "Headers" || name === "FormData" || name === "URLSearchParams")
    return [...(value as Iterable<[string, unknown]>)].map(([key, item]) => [isIdentifier(key) ? key : quote(key), item]);
  const view: [string, unknown][] = [];
  for (
    let proto = Object.getPrototypeOf(value) as object;
    proto !== Object.prototype && proto !== null;
    proto = Object.getPrototypeOf(proto) as object
  ) {
    for (const [key, own] of Object.entries(Object.getOwnPropertyDescriptors(proto))) {
      if (own.get !== undefined && !untouched.has(key) && !key.startsWith("on") && !key.startsWith("_"))
        view.push([key, own.get.call(value)]);
    }
  }
  return view;
}

function showFunction(value: object, depth: number, walk: Walk): string {
  const source = Function.prototype.toString.call(value);
  const own = Object.getOwnPropertyDescriptor(value, "name");
  const name = typeof own?.value === "string" && own.value !== "" ? own.value : null;
  if (source.startsWith("class")) {
    const parent = (Object.getPrototypeOf(value) as { name?: unknown } | null)?.name;
    return withProperties(
      `[class ${name ?? "(anonymous)"}${typeof parent === "string" && parent !== "" ? ` extends ${parent}` : ""}]`,
      value,
      depth,
      walk,
    );
  }
  const kind = constructorName(value) ?? "Function";
  return withProperties(name === null ? `[${kind} (anonymous)]` : `[${kind}: ${name}]`, value, depth, walk);
}

function showArray(value: unknown[], depth: number, walk: Walk): string {
  const name = constructorName(value);
  if (depth >= maxDepth) return "[Array]";
  const items: string[] = [];
  let holes = 0;
  const flush = () => {
    if (holes > 0) items.push(`<${holes} empty item${holes > 1 ? "s" : ""}>`);
    holes = 0;
  };
  for (let index = 0; index < value.length && items.length < maxItems && index < 10_000; index++) {
    const own = Object.getOwnPropertyDescriptor(value, index);
    if (own === undefined) {
      holes++;
      continue;
    }
    flush();
    items.push(showProperty(own, depth, walk));
  }
  flush();
  const all = holes === 0 && items.length >= maxItems ? more(items, value.length) : items;
  // Looking for named properties costs a list of all keys.
  const named = value.length > 10_000 ? [] : properties(value, depth, walk, (key) => !/^\d+$/.test(key));
  const prefix = name === "Array" ? "" : `${name ?? "[Array: null prototype]"}(${value.length}) `;
  const simple =
    named.length === 0 && value.length > 6 && value.slice(0, maxItems).every((item) => typeof item !== "object" || item === null);
  return wrap(prefix, "[", [...all, ...named], "]", simple);
}

const more = (items: string[], total: number): string[] =>
  total > items.length ? [...items, `... ${total - items.length} more item${total - items.length > 1 ? "s" : ""}`] : items;

function showProperty(own: PropertyDescriptor, depth: number, walk: Walk): string {
  if (own.get !== undefined) return own.set === undefined ? "[Getter]" : "[Getter/Setter]";
  if (own.set !== undefined) return "[Setter]";
  return show(own.value, depth + 1, walk);
}

function properties(value: object, depth: number, walk: Walk, filter: (key: string) => boolean = () => true): string[] {
  const shown: string[] = [];
  for (const key of Reflect.ownKeys(value)) {
    if (typeof key === "string" && !filter(key)) continue;
    const own = Object.getOwnPropertyDescriptor(value, key);
    if (own === undefined || !own.enumerable) continue;
    if (shown.length >= maxItems) {
      shown.push("...");
      break;
    }
    const name = typeof key === "symbol" ? key.toString() : isIdentifier(key) ? key : quote(key);
    shown.push(`${name}: ${showProperty(own, depth, walk)}`);
  }
  return shown;
}

function withProperties(text: string, value: object, depth: number, walk: Walk): string {
  if (depth >= maxDepth) return text;
  const shown = properties(value, depth, walk);
  return shown.length === 0 ? text : wrap(`${text} `, "{", shown, "}");
}

/** Name, message and stack of an error, its causes and aggregated errors, and whatever else it carries. */
function showError(error: Error, depth: number, walk: Walk): string {
  const read = (key: string): unknown => {
    try {
      return (error as unknown as Record<string, unknown>)[key];
    } catch {
      return undefined;
    }
  };
  const text = (value: unknown) => (typeof value === "string" ? value.slice(0, maxString) : "");
  const name = text(read("name")) || "Error";
  const message = text(read("message"));
  const stack = text(read("stack"));
  let shown = stack === "" ? `[${name}${message === "" ? "" : `: ${message}`}]` : stack;
  // A name given after construction is not in the stack V8 made.
  if (stack !== "" && !stack.startsWith(name)) shown = stack.replace(/^(?:Uncaught )?[\w$.]*Error/, () => name);
  if (depth > 0 && stack !== "") shown = shown.replaceAll("\n", "\n  ");
  const extra = properties(
    error,
    depth,
    walk,
    (key) => key !== "stack" && key !== "message" && key !== "name" && key !== "cause" && key !== "errors",
  );
  if (Object.hasOwn(error, "cause") && depth < maxDepth) extra.push(`[cause]: ${show(read("cause"), depth + 1, walk)}`);
  const errors = read("errors");
  if (Object.hasOwn(error, "errors") && depth < maxDepth) extra.push(`[errors]: ${show(errors, depth + 1, walk)}`);
  return extra.length === 0 ? shown : `${shown} {\n${indent(extra.join(",\n"))}\n}`;
}

const indent = (text: string) => `  ${text.replaceAll("\n", "\n  ")}`;

/** On one line when it fits, else an item a line; long lists of simple values fill their lines. */
function wrap(prefix: string, open: string, items: string[], close: string, isList = false): string {
  if (items.length === 0) return `${prefix}${open}${close}`;
  const total = items.reduce((sum, item) => sum + item.length + 2, prefix.length);
  if (total <= lineWidth - 4 && !items.some((item) => item.includes("\n"))) return `${prefix}${open} ${items.join(", ")} ${close}`;
  if (!isList) return `${prefix}${open}\n${indent(items.join(",\n"))}\n${close}`;
  const lines: string[] = [];
  let line = "";
  for (let index = 0; index < items.length; index++) {
    const item = `${items[index]}${index < items.length - 1 ? "," : ""}`;
    if (line !== "" && line.length + item.length + 1 > lineWidth - 4) {
      lines.push(line);
      line = item;
    } else line = line === "" ? item : `${line} ${item}`;
  }
  lines.push(line);
  return `${prefix}${open}\n${indent(lines.join("\n"))}\n${close}`;
}
