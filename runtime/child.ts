import { writeFileSync } from "node:fs";
import { accept, createDataListener, retire } from "./isolate/data-listener.ts";
import { Engine } from "./isolate/engine.ts";
import { inheritedFd, SupervisorLink } from "./isolate/link.ts";
import { rehearse } from "./isolate/rehearsal.ts";
import { Sandbox } from "./isolate/sandbox.ts";
import { catastropheSignal } from "./seam/catastrophe.ts";
import { BoardWriter } from "./seam/flight-board.ts";
import { frameKind } from "./seam/frames.ts";
import { cutProgram } from "./seam/program-bytes.ts";
import type { LoadHead } from "./seam/records.ts";

/**
 * The child of a runtime: one isolate, the data listener, and no credential. Everything it knows came over the socket pair; everything it wants
 * goes back there. It never exits by itself: a process that ends while an isolate runs may hang, so it is always killed.
 */
interface Boot {
  memory_mb: number;
}

let engine: Engine | undefined;
let kit = "";
let memoryMb = 0;

// Under memory pressure the kernel should take this process, not the supervisor that brings its successor.
try {
  writeFileSync("/proc/self/oom_score_adj", "900");
} catch {
  // Not on Linux, or not permitted: the supervisor's own watch remains.
}

const link = new SupervisorLink(
  (kind, a, b, text, bytes) => {
    if (kind === frameKind.boot) boot(JSON.parse(text) as Boot, bytes);
    else if (kind === frameKind.ping) link.send(frameKind.pong, a);
    else if (!engine) return;
    else if (kind === frameKind.settle) engine.answered(a, b === 1, text, bytes);
    else if (kind === frameKind.load) load(JSON.parse(text) as LoadHead, bytes);
    else if (kind === frameKind.unavailable) engine.revisionUnavailable(a, text);
    else if (kind === frameKind.drain) drain(engine);
    else if (kind === frameKind.retire) retireFor(engine);
    else if (kind === frameKind.accept) accept(listen(), () => link.send(frameKind.accepting));
  },
  (slot) => engine?.releaseSlot(slot),
);

function boot(options: Boot, script: Uint8Array): void {
  kit = Buffer.from(script).toString("utf8");
  const sandbox = createSandbox(options.memory_mb);
  engine = createEngine(sandbox);
  // Not when a program came with the same breath: its callers wait.
  setImmediate(() => {
    const rehearsed = engine?.program === null ? rehearse(sandbox) : Promise.resolve("");
    void rehearsed.then(() => link.send(frameKind.ready));
  });
}

function createSandbox(limitMb: number): Sandbox {
  memoryMb = limitMb;
  // isolated-vm has lost control of the isolate: nothing in this process can be trusted to go on.
  return new Sandbox(kit, limitMb, () => process.kill(process.pid, catastropheSignal));
}

function createEngine(sandbox: Sandbox): Engine {
  const made = new Engine(sandbox, link, new BoardWriter(inheritedFd.board));
  made.onLost = () => {
    listener?.close();
    listener?.closeIdleConnections();
  };
  return made;
}

/** The first load may bring another memory limit than the warm isolate has: then it is made anew, while nothing runs in it. */
function load(head: LoadHead, bytes: Buffer): void {
  if (engine && !engine.program && head.limits.memory_mb !== memoryMb) engine = createEngine(createSandbox(head.limits.memory_mb));
  engine?.load(head, head.fresh ? cutProgram(bytes, head.program) : null);
}

let listener: ReturnType<typeof createDataListener> | undefined;

function listen(): ReturnType<typeof createDataListener> {
  listener ??= createDataListener(() => engine);
  return listener;
}

function drain(running: Engine): void {
  listener?.close();
  listener?.closeIdleConnections();
  whenIdle(running, sayDrained);
}

/** Nobody is cut off: the open connections end with their next answer, then the runs that go on after theirs. */
function retireFor(running: Engine): void {
  retire(listen(), () => whenIdle(running, sayDrained));
}

function sayDrained(): void {
  link.flush();
  link.send(frameKind.drained);
}

function whenIdle(running: Engine, action: () => void): void {
  if (running.runs.size === 0) action();
  else running.onIdle = action;
}
