/** console (Console standard) into the run's log. */
import { currentRunKey } from "./current-run.ts";
import { host } from "./host.ts";
import { inspect } from "./inspect.ts";
import { jsonStringify, stringSlice, toWellFormed } from "./primordials.ts";
import { findRun } from "./run.ts";

type Level = "debug" | "info" | "warn" | "error";

/** Characters of one message that cross; the host cuts the line to its own limit in bytes and says so. */
const messageLength = 16_384;

/** `printf`-like formatting as in Node: %s %d %i %f %j %o %O %c %%. */
export function format(values: readonly unknown[]): string {
  const [first, ...rest] = values;
  if (typeof first !== "string") return values.map((value) => (typeof value === "string" ? value : inspect(value))).join(" ");
  let used = 0;
  const text =
    rest.length === 0
      ? first
      : first.replace(/%[sdifjoOc%]/g, (directive) => {
          if (directive === "%%") return "%";
          if (used >= rest.length) return directive;
          const value = rest[used++];
          switch (directive[1]) {
            case "s":
              return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : inspect(value);
            case "d":
              return typeof value === "object" ? "NaN" : typeof value === "bigint" ? `${value}n` : String(Number(value as number));
            case "i":
              return typeof value === "object"
                ? "NaN"
                : typeof value === "bigint"
                  ? `${value}n`
                  : String(Number.parseInt(String(value), 10));
            case "f":
              return String(Number.parseFloat(String(value)));
            case "j":
              return jsonStringify(value) ?? "undefined";
            case "c":
              return "";
            default:
              return inspect(value);
          }
        });
  return [text, ...rest.slice(used).map((value) => (typeof value === "string" ? value : inspect(value)))].join(" ");
}

const counts = new Map<string, number>();
const timers = new Map<string, number>();

function write(level: Level, values: readonly unknown[]): void {
  let text: string;
  try {
    text = `${format(values)}`;
  } catch {
    text = "[message that cannot be shown]";
  }
  const runKey = currentRunKey();
  const depth = findRun(runKey)?.groupDepth ?? 0;
  if (depth > 0) text = `${"  ".repeat(depth)}${text.replaceAll("\n", `\n${"  ".repeat(depth)}`)}`;
  host.log(runKey, level, toWellFormed(stringSlice(text, 0, messageLength)));
}

const elapsed = (label: string): string | null => {
  const start = timers.get(label);
  return start === undefined ? null : `${label}: ${Date.now() - start}ms`;
};

/** A table like Node's, for arrays and objects of rows. */
function table(data: unknown, columns?: readonly string[]): string {
  if (typeof data !== "object" || data === null) return format([data]);
  const rows = Object.entries(data);
  const names: string[] = columns === undefined ? [] : [...columns];
  let hasValues = false;
  for (const [, row] of rows) {
    if (typeof row !== "object" || row === null) hasValues = true;
    else if (columns === undefined) for (const key of Object.keys(row)) if (!names.includes(key)) names.push(key);
  }
  const header = ["(index)", ...names, ...(hasValues ? ["Values"] : [])];
  const body = rows.map(([index, row]) => {
    const isRow = typeof row === "object" && row !== null;
    const cells = names.map((name) => (isRow && Object.hasOwn(row, name) ? inspect((row as Record<string, unknown>)[name]) : ""));
    return [index, ...cells, ...(hasValues ? [isRow ? "" : inspect(row)] : [])];
  });
  const widths = header.map((name, column) => Math.max(name.length, ...body.map((row) => row[column]?.length ?? 0)) + 2);
  const line = (cells: string[]) => `│${cells.map((cell, column) => ` ${cell}`.padEnd(widths[column] ?? 0)).join("│")}│`;
  const rule = (left: string, middle: string, right: string) => left + widths.map((width) => "─".repeat(width)).join(middle) + right;
  return [rule("┌", "┬", "┐"), line(header), rule("├", "┼", "┤"), ...body.map(line), rule("└", "┴", "┘")].join("\n");
}

const stackHere = () => {
  const { stack } = new Error();
  return typeof stack === "string" ? stack.split("\n").slice(3).join("\n") : "";
};

export const console = {
  log: (...values: unknown[]) => write("info", values),
  info: (...values: unknown[]) => write("info", values),
  debug: (...values: unknown[]) => write("debug", values),
  warn: (...values: unknown[]) => write("warn", values),
  error: (...values: unknown[]) => write("error", values),
  trace: (...values: unknown[]) => write("error", [`Trace: ${format(values)}\n${stackHere()}`]),
  dir: (value: unknown) => write("info", [inspect(value)]),
  dirxml: (...values: unknown[]) => write("info", values),
  table: (data: unknown, columns?: readonly string[]) => write("info", [table(data, columns)]),
  assert(condition?: unknown, ...values: unknown[]) {
    if (condition) return;
    const [first, ...rest] = values;
    write(
      "error",
      typeof first === "string"
        ? [`Assertion failed: ${first}`, ...rest]
        : values.length === 0
          ? ["Assertion failed"]
          : ["Assertion failed:", ...values],
    );
  },
  count(label: unknown = "default") {
    const name = `${label as string}`;
    const count = (counts.get(name) ?? 0) + 1;
    if (counts.size < 1000 || counts.has(name)) counts.set(name, count);
    write("info", [`${name}: ${count}`]);
  },
  countReset(label: unknown = "default") {
    if (!counts.delete(`${label as string}`)) write("warn", [`Count for '${label as string}' does not exist`]);
  },
  group(...values: unknown[]) {
    if (values.length > 0) write("info", values);
    const run = findRun(currentRunKey());
    if (run !== undefined && run.groupDepth < 20) run.groupDepth++;
  },
  groupCollapsed: (...values: unknown[]) => console.group(...values),
  groupEnd() {
    const run = findRun(currentRunKey());
    if (run !== undefined && run.groupDepth > 0) run.groupDepth--;
  },
  time(label: unknown = "default") {
    const name = `${label as string}`;
    if (timers.has(name)) write("warn", [`Label '${name}' already exists for console.time()`]);
    else if (timers.size < 1000) timers.set(name, Date.now());
  },
  timeLog(label: unknown = "default", ...values: unknown[]) {
    const text = elapsed(`${label as string}`);
    if (text === null) write("warn", [`No such label '${label as string}' for console.timeLog()`]);
    else write("info", [text, ...values]);
  },
  timeEnd(label: unknown = "default") {
    const text = elapsed(`${label as string}`);
    timers.delete(`${label as string}`);
    if (text === null) write("warn", [`No such label '${label as string}' for console.timeEnd()`]);
    else write("info", [text]);
  },
  timeStamp: () => {},
  profile: () => {},
  profileEnd: () => {},
  clear: () => {},
  get [Symbol.toStringTag]() {
    return "console";
  },
};
