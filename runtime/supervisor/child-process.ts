import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { childEntry } from "../entry-paths.ts";
import type { Assignment } from "../seam/assignment.ts";
import { closeBoard, openBoard } from "../seam/flight-board.ts";
import { type FrameListener, frameKind, readFrames, writeFrame } from "../seam/frames.ts";
import { residentBytes } from "./process-facts.ts";

/** Heap of the child's own JavaScript, beside the isolate's: request heads and bodies in transit. */
const hostHeapMb = 160;
const nodeFlags = ["--no-node-snapshot", "--disallow-code-generation-from-strings", `--max-old-space-size=${hostHeapMb}`];
const setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].find((path) => existsSync(path));

/**
 * How the child is started: on Linux without the means to gain privileges, as root also without any capability. The kernel kills it when this
 * process is gone, however that ended: a child whose isolate is wedged could not notice it by itself.
 */
export function childCommand(): { command: string; args: string[] } {
  const own = [...nodeFlags, childEntry()];
  if (process.platform !== "linux" || !setpriv) return { command: process.execPath, args: own };
  const capabilities = process.getuid?.() === 0 ? ["--bounding-set=-all", "--inh-caps=-all"] : [];
  return { command: setpriv, args: ["--no-new-privs", "--pdeathsig", "SIGKILL", ...capabilities, process.execPath, ...own] };
}

export interface ChildEnd {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** It sent what is no frame, and was killed for that. */
  wasGarbled: boolean;
}

/** A child process from its spawn to its end: its end of the socket pair, its flight board, and the only way to end it: SIGKILL. */
export class RuntimeChild {
  readonly process: ChildProcess;
  readonly boardFd: number;
  readonly ready: Promise<void>;
  /** Settles when the process is gone and everything it had written has been read. The board must be closed by whoever waits for it. */
  readonly gone: Promise<ChildEnd>;
  /** Settles when the child takes connections. */
  readonly accepting: Promise<void>;
  isAccepting = false;
  isReady = false;
  /** Resident memory when isolate and web API were warm and no program was loaded. */
  readyRssBytes = 0;
  /** The newest assignment it has been sent. */
  given: Assignment | null = null;
  /** Runs it has told the end of. */
  servedRuns = 0;
  onFrame: FrameListener = () => {};
  #isGarbled = false;
  readonly #socket: Socket;

  constructor(listenFd: number, kit: string, memoryMb: number) {
    this.boardFd = openBoard();
    const { command, args } = childCommand();
    this.process = spawn(command, args, {
      cwd: "/",
      env: {},
      detached: true,
      stdio: ["ignore", "ignore", "inherit", "pipe", listenFd, this.boardFd],
    });
    this.#socket = this.process.stdio[3] as Socket;
    const becameReady = Promise.withResolvers<void>();
    this.ready = becameReady.promise;
    this.ready.catch(() => {});
    const becameAccepting = Promise.withResolvers<void>();
    this.accepting = becameAccepting.promise;
    this.accepting.catch(() => {});
    const read = readFrames((kind, a, b, text, bytes) => {
      if (kind === frameKind.ready) {
        this.isReady = true;
        this.readyRssBytes = residentBytes(this.pid);
        becameReady.resolve();
      } else if (kind === frameKind.accepting) {
        this.isAccepting = true;
        becameAccepting.resolve();
      }
      this.onFrame(kind, a, b, text, bytes);
    });
    this.#socket.on("data", (chunk: Buffer) => {
      try {
        read(chunk);
      } catch {
        this.#isGarbled = true;
        this.kill();
      }
    });
    this.#socket.on("error", () => this.kill());
    const exited = new Promise<ChildEnd>((resolve) => {
      this.process.on("error", (error) => {
        becameReady.reject(error);
        resolve({ code: null, signal: null, wasGarbled: this.#isGarbled });
      });
      this.process.on("exit", (code, signal) => {
        becameAccepting.reject(new Error("the child ended before it accepted"));
        becameReady.reject(new Error(`the child ended before it was ready (${signal ?? code})`));
        resolve({ code, signal, wasGarbled: this.#isGarbled });
      });
    });
    const drained = new Promise<void>((resolve) => this.#socket.on("close", () => resolve()));
    this.gone = Promise.all([exited, drained]).then(([end]) => end);
    this.send(frameKind.boot, 0, 0, JSON.stringify({ memory_mb: memoryMb }), Buffer.from(kit));
  }

  get pid(): number {
    return this.process.pid ?? 0;
  }

  send(kind: number, a = 0, b = 0, text = "", bytes?: Uint8Array): void {
    if (!this.#socket.destroyed) writeFrame(this.#socket, kind, a, b, text, bytes);
  }

  kill(): void {
    this.process.kill("SIGKILL");
  }

  closeBoard(): void {
    closeBoard(this.boardFd);
  }
}
