import { type Logger, pino } from "pino";
import { secretPrefixes } from "./secrets.ts";

export type { Logger };

const secretText = new RegExp(`(${secretPrefixes.join("|")})[0-9A-Za-z]{6,}`, "g");
const jwtText = /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+/g;

/** Masks every platform credential inside a text: the kind stays readable, the secret does not. */
export function redact(value: string): string {
  return value.replace(secretText, "$1[redacted]").replace(jwtText, "[redacted jwt]");
}

function redactDeep(value: unknown, depth: number): unknown {
  if (typeof value === "string") return redact(value);
  if (depth === 0 || value === null || typeof value !== "object" || Buffer.isBuffer(value) || value instanceof Date) return value;
  if (value instanceof Error) {
    const own = redactDeep({ ...value }, depth - 1) as object;
    return { type: value.name, message: redact(value.message), stack: redact(value.stack ?? ""), ...own };
  }
  if (Array.isArray(value)) return value.map((item) => redactDeep(item, depth - 1));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, redactDeep(item, depth - 1)]));
}

/** The process's logger: JSON lines on standard output, one per event. No credential reaches a line, whatever field it came in. */
export function createLogger(name: string, options: { level?: string; destination?: { write(line: string): void } } = {}): Logger {
  return pino(
    {
      name,
      level: options.level ?? "info",
      redact: {
        paths: ["password", "*.password", "secret", "*.secret", "authorization", "cookie", "*.authorization", "*.cookie"],
        censor: "[redacted]",
      },
      formatters: { log: (fields) => redactDeep(fields, 4) as Record<string, unknown> },
      hooks: {
        logMethod(args, method) {
          method.apply(this, args.map((arg) => (typeof arg === "string" ? redact(arg) : arg)) as Parameters<typeof method>);
        },
      },
    },
    options.destination ?? pino.destination({ sync: true }),
  );
}
