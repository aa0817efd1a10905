import type { KapLimits } from "#platform/assignment.ts";
import type { LogLine } from "../seam/records.ts";

const levels = new Set(["debug", "info", "warn", "error"]);

/** The lines of one run: counted, redacted, cut to the kap's limits; past the limit one line says so and the rest is dropped (decided §7.2). */
export class LogBook {
  #count = 0;
  readonly #runId: string;
  readonly #sink: (line: LogLine) => void;

  constructor(runId: string, sink: (line: LogLine) => void) {
    this.#runId = runId;
    this.#sink = sink;
  }

  add(level: string, text: string, limits: KapLimits, redact: (text: string) => string): void {
    if (this.#count > limits.log_lines) return;
    this.#count++;
    if (this.#count > limits.log_lines) {
      this.#write("warn", `[log truncated: a run may write ${limits.log_lines} lines; further lines of this run are dropped]`);
      return;
    }
    this.#write(levels.has(level) ? level : "info", cut(redact(cut(text, limits.log_line_bytes * 2)), limits.log_line_bytes));
  }

  #write(level: string, text: string): void {
    this.#sink({ run_id: this.#runId, n: this.#count, at: new Date().toISOString(), level, text });
  }
}

/** Cuts a text to a number of UTF-8 bytes, never inside a character, and says that it did. */
export function cut(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes || Buffer.byteLength(text) <= maxBytes) return text;
  const mark = " … [cut]";
  const kept = Buffer.from(text.slice(0, maxBytes))
    .subarray(0, maxBytes - Buffer.byteLength(mark))
    .toString("utf8");
  return `${kept.replace(/\uFFFD$/, "")}${mark}`;
}
