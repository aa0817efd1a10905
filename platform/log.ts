import { type Logger, pino } from "pino";
import { secretPrefixes } from "./secrets.ts";

export type { Logger };

const secretText = new RegExp(`(${secretPrefixes.join("|")})[0-9A-Za-z]{6,}`, "g");
const jwtText = /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+/g;

/** Masks every platform credential inside a text: the kind stays readable, the secret does not. */
export function redact(value: string): string {
  return value.replace(secretText, "$1[redacted]").replace(jwtText, "[redacted jwt]");
}

/**
 * The process's logger: JSON lines on standard output, one per event, an error as `err` with its causes. Each line is redacted as a whole, so that no
 * credential reaches it, whatever field it came in and however deep.
 */
export function createLogger(name: string, options: { level?: string; destination?: { write(line: string): void } } = {}): Logger {
  const destination = options.destination ?? pino.destination({ sync: true });
  return pino(
    {
      name,
      level: options.level ?? "info",
      redact: {
        paths: ["password", "*.password", "secret", "*.secret", "authorization", "cookie", "*.authorization", "*.cookie"],
        censor: "[redacted]",
      },
      serializers: { err: pino.stdSerializers.errWithCause },
    },
    { write: (line) => destination.write(redact(line)) },
  );
}
