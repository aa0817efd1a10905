import { Socket } from "node:net";
import { frameKind, readFrames, writeFrame } from "../seam/frames.ts";
import type { Ended, LogLine, RunEnd } from "../seam/records.ts";

/** Descriptors every child inherits, after standard input, output and error. */
export const inheritedFd = { link: 3, listen: 4, board: 5 } as const;

/** How long ended runs and lines are gathered before they go up: long enough to batch under load, short beside the api's 250 ms. */
const gatherMs = 25;
const maxGatheredBytes = 256 * 1024;
const maxGatheredRuns = 256;

/** What an engine says to its supervisor. */
export type RunLink = Pick<SupervisorLink, "send" | "addLine" | "addRun" | "flush">;

/** The child's end of the socket pair to its supervisor. When the supervisor is gone, so is the child. */
export class SupervisorLink {
  readonly #socket: Socket;
  #runs: RunEnd[] = [];
  #slots: number[] = [];
  #lines: LogLine[] = [];
  #gatheredBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #releaseSlot: (slot: number) => void;

  constructor(listener: Parameters<typeof readFrames>[0], releaseSlot: (slot: number) => void) {
    this.#releaseSlot = releaseSlot;
    this.#socket = new Socket({ fd: inheritedFd.link, readable: true, writable: true });
    this.#socket.on("data", readFrames(listener));
    const leave = () => process.kill(process.pid, "SIGKILL");
    this.#socket.on("close", leave).on("error", leave);
  }

  send(kind: number, a = 0, b = 0, text = "", bytes?: Uint8Array | undefined): void {
    writeFrame(this.#socket, kind, a, b, text, bytes);
  }

  addLine(line: LogLine): void {
    this.#lines.push(line);
    this.#gatheredBytes += line.text.length;
    this.#gather();
  }

  /** Hands over the end of a run; its board slot is free for another once the record is on its way. */
  addRun(run: RunEnd, slot: number): void {
    this.#runs.push(run);
    this.#slots.push(slot);
    this.#gather();
  }

  #gather(): void {
    if (this.#gatheredBytes > maxGatheredBytes || this.#runs.length >= maxGatheredRuns) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), gatherMs);
  }

  /** Sends what has been gathered now. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#runs.length === 0 && this.#lines.length === 0) return;
    const ended: Ended = { runs: this.#runs, lines: this.#lines };
    this.send(frameKind.ended, 0, 0, JSON.stringify(ended));
    for (const slot of this.#slots) this.#releaseSlot(slot);
    this.#runs = [];
    this.#slots = [];
    this.#lines = [];
    this.#gatheredBytes = 0;
  }
}
