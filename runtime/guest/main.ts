/**
 * The kit: everything a program finds inside its isolate. Evaluating this script (also into a snapshot) makes the API and leaves one global,
 * `__boot`; the host then sets `__host` and calls it. What remains reachable afterwards is the Web's API and nothing of the host.
 */
import { enterRun } from "./current-run.ts";
import { install, startRun, wasLoading } from "./dispatch.ts";
import { startClock } from "./events.ts";
import { installGlobals, rejectionOutOfReach } from "./globals.ts";
import { bindHost, type Host, settleCall } from "./host.ts";
import { kapModule, setSecrets } from "./kap-module.ts";
import { coarsenClocks, forbidCodeFromText, removeSharedMemory } from "./lockdown.ts";
import { defineProperty } from "./primordials.ts";
import { guarded } from "./report-error.ts";
import { abortRun, dropRun } from "./run.ts";
import { fireTimer } from "./timers.ts";
import { wrapWebAssembly } from "./web-assembly.ts";

/** The host's entries into the isolate. None of them throws. */
const guest = {
  run: startRun,
  settle(callId: number, runKey: number, ok: boolean, text: string | undefined, bytes: ArrayBuffer | undefined): void {
    enterRun(runKey);
    settleCall(callId, ok, text, bytes);
  },
  timer(timerId: number, runKey: number): void {
    enterRun(runKey);
    guarded(() => fireTimer(timerId));
  },
  abort(runKey: number, reason: string): void {
    enterRun(runKey);
    guarded(() => abortRun(runKey, reason));
  },
  /** For a run that did not end by `done`. Runs no code of the program. True when the isolate should be replaced: a module was still being evaluated in this run's time. */
  forget(runKey: number): boolean {
    dropRun(runKey);
    return wasLoading(runKey);
  },
  rejection(runKey: number, detail: string): void {
    enterRun(runKey);
    guarded(() => rejectionOutOfReach(runKey, detail));
  },
  secrets: setSecrets,
};

const scope = globalThis as unknown as Record<string | symbol, unknown>;

function boot(): void {
  bindHost(scope.__host as Host);
  delete scope.__boot;
  delete scope.__host;
  startClock();
  // A snapshot has no WebAssembly yet; and what V8 adds to a context made from one is taken away here.
  wrapWebAssembly();
  removeSharedMemory();
  scope.__guest = guest;
  scope.__install = (table: Parameters<typeof install>[0]) => {
    delete scope.__install;
    install(table);
  };
}

removeSharedMemory();
coarsenClocks();
forbidCodeFromText();
installGlobals();
defineProperty(globalThis, Symbol.for("kap"), { value: kapModule });
defineProperty(globalThis, "__boot", { value: boot, configurable: true });
