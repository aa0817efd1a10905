import type { Logger } from "#platform/log.ts";
import type { Ended, LogLine, RunEnd } from "../seam/records.ts";
import { type ApiAddress, callApi } from "./api-client.ts";

/** With the child's own gathering (25 ms) this stays well below the 250 ms within which the api learns of a run's end. */
const batchMs = 100;
const sendTimeoutMs = 10_000;
const firstRetryMs = 200;
const longestRetryMs = 5_000;
const maxRunsABatch = 2_000;
const maxLinesABatch = 2_000;
/** What is kept through an outage of the api. Lines go first: a run's end is never dropped for them. */
const maxKeptRuns = 200_000;
const maxKeptLineBytes = 32 * 1024 * 1024;
/** The first word to the api comes this long after the claim: by then whoever claimed has written down that it did. */
const firstWordMs = 3_000;
/** Slower than the api's sweep asks runtimes that are silent how they are (20 s): one that only says that it lives must still be found idle. */
const wordMs = 60_000;

/** Delivers ends of runs and log lines to the api in batches, again and again until each is acknowledged. The api takes repetitions for what they are. */
export class Reporter {
  #runs: RunEnd[] = [];
  #lines: LogLine[] = [];
  #lineBytes = 0;
  #droppedLines = 0;
  #timer: NodeJS.Timeout | undefined;
  #nextWord: NodeJS.Timeout | undefined;
  #sending: Promise<void> | null = null;
  #retryMs = 0;
  readonly #log: Logger;
  readonly #target: () => (ApiAddress & { runtimeId: string }) | null;
  readonly #idleSince: () => string | null;
  readonly #onDisowned: () => void;

  /** `onDisowned` is told when the api no longer knows this runtime (410): nobody will call it again. */
  constructor(
    log: Logger,
    target: () => (ApiAddress & { runtimeId: string }) | null,
    idleSince: () => string | null,
    onDisowned: () => void,
  ) {
    this.#log = log;
    this.#target = target;
    this.#idleSince = idleSince;
    this.#onDisowned = onDisowned;
  }

  /**
   * From the claim on the api hears of this runtime now and then, also when there is nothing to report: one whose claim nobody wrote down (the api's
   * process died over it) is told so, and ends instead of waiting for calls that never come.
   */
  keepInTouch(afterMs: number = firstWordMs): void {
    this.#nextWord = setTimeout(() => {
      this.#arm(0);
      this.keepInTouch(wordMs);
    }, afterMs).unref();
  }

  get backlog(): number {
    return this.#runs.length;
  }

  add(ended: Ended): void {
    this.#runs.push(...ended.runs);
    for (const line of ended.lines) {
      this.#lines.push(line);
      this.#lineBytes += line.text.length;
    }
    this.#trim();
    this.#arm(batchMs);
  }

  #trim(): void {
    let dropped = 0;
    while (this.#lineBytes > maxKeptLineBytes && dropped < this.#lines.length) this.#lineBytes -= this.#lines[dropped++]?.text.length ?? 0;
    if (dropped > 0) this.#lines.splice(0, dropped);
    this.#droppedLines += dropped;
    if (this.#runs.length > maxKeptRuns) this.#runs.splice(0, this.#runs.length - maxKeptRuns);
  }

  #arm(ms: number): void {
    if (this.#sending || this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#sending = this.#send().finally(() => {
        this.#sending = null;
        if (this.#runs.length > 0 || this.#lines.length > 0) this.#arm(Math.max(this.#retryMs, batchMs));
      });
    }, ms);
  }

  async #send(): Promise<void> {
    const target = this.#target();
    if (!target) return;
    const runs = this.#runs.slice(0, maxRunsABatch);
    const lines = this.#lines.slice(0, maxLinesABatch);
    try {
      const response = await callApi(target, {
        method: "POST",
        path: `/internal/runtimes/${target.runtimeId}/report`,
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ runs, lines, idle_since: this.#idleSince() }),
        signal: AbortSignal.timeout(sendTimeoutMs),
      });
      response.resume();
      const status = response.statusCode ?? 0;
      if (status === 410) this.#onDisowned();
      // A batch the api cannot take as it is would be refused for ever; authority that has ended ends the reports too.
      if (status >= 300 && status !== 408 && status !== 429 && status < 500)
        this.#log.error({ status }, "the api refused a report; it is dropped");
      else if (status >= 300) throw new Error(`the api answered ${status}`);
      this.#acknowledged(runs, lines);
    } catch (error) {
      this.#retryMs = Math.min(Math.max(this.#retryMs * 2, firstRetryMs), longestRetryMs);
      this.#log.warn({ err: error, runs: this.#runs.length, retry_ms: this.#retryMs }, "a report was not delivered; it is sent again");
    }
  }

  /** Removes what was delivered. Trimming may have taken some of it from the front meanwhile, so identity decides, not position. */
  #acknowledged(runs: RunEnd[], lines: LogLine[]): void {
    this.#retryMs = 0;
    const sentRuns = new Set(runs);
    const sentLines = new Set(lines);
    this.#runs = this.#runs.filter((run) => !sentRuns.has(run));
    this.#lines = this.#lines.filter((line) => !sentLines.has(line));
    for (const line of lines) this.#lineBytes -= line.text.length;
    if (this.#lines.length === 0) this.#lineBytes = 0;
    if (this.#droppedLines > 0) this.#log.warn({ lines: this.#droppedLines }, "log lines were dropped while the api was away");
    this.#droppedLines = 0;
  }

  /** Delivers what is left, trying until `deadlineMs` from now. Answers how many runs could not be told. */
  async close(deadlineMs: number): Promise<number> {
    const deadline = Date.now() + deadlineMs;
    clearTimeout(this.#nextWord);
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (Date.now() < deadline) {
      await this.#sending;
      if (this.#runs.length === 0 && this.#lines.length === 0) break;
      await this.#send();
      if (this.#retryMs > 0)
        await new Promise((resolve) => setTimeout(resolve, Math.min(this.#retryMs, Math.max(0, deadline - Date.now()))));
    }
    clearTimeout(this.#timer);
    return this.#runs.length;
  }
}
