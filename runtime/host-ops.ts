/**
 * The host's side of the guest API's pure operations: crypto, compression, encodings and addresses. Plain functions of text and bytes that
 * need no network and know nothing of isolates; the runtime and the guest kit's tests use the same ones.
 */
import { createHostCompression } from "./host-compression.ts";
import { createHostCrypto } from "./host-crypto.ts";
import { syncOps } from "./host-sync-ops.ts";
import type { OpAnswer } from "./op-answer.ts";

export interface HostOps {
  /** Answers at once and never throws: bytes, or text behind `=`, or an error's JSON `{name, message, code?}` behind `!`. */
  sync(op: string, text: string, bytes: ArrayBuffer | undefined): string | ArrayBuffer;
  /** Whether `call` knows the operation. */
  handles(op: string): boolean;
  /** Rejects with an Error whose name, message and code may be shown to the program. */
  call(runKey: number, op: string, text: string, bytes: ArrayBuffer | undefined): Promise<OpAnswer>;
  /** Drops what a run has left: its compression streams, its count of pending calls. */
  forget(runKey: number): void;
}

/** The JSON of a call: parameters, a key, a signature. What is large crosses as bytes. */
const maxArgumentLength = 262_144;
/** Text or bytes of one synchronous call: it works on the thread that serves every run. */
const maxSyncLength = 67_108_864;

/** Calls of one run that may be at work at the same time; a further one is refused, so that no run fills the thread pool's queue. */
const maxPendingCalls = 64;

export function createHostOps(): HostOps {
  const crypto = createHostCrypto();
  const compression = createHostCompression();
  const pending = new Map<number, number>();
  return {
    sync(op, text, bytes) {
      try {
        const run = syncOps[op];
        if (run === undefined) throw new TypeError(`There is no operation ${op}.`);
        if (text.length > maxSyncLength || (bytes?.byteLength ?? 0) > maxSyncLength)
          throw new RangeError("At most 64 MiB are worked on at once.");
        const answer = run(text, bytes);
        return typeof answer === "string" ? `=${answer}` : answer;
      } catch (error) {
        return `!${JSON.stringify(shownError(error))}`;
      }
    },
    handles: (op) => op.startsWith("crypto.") || op.startsWith("compress."),
    async call(runKey, op, text, bytes) {
      const count = pending.get(runKey) ?? 0;
      if (count >= maxPendingCalls)
        throw namedError("OperationError", `A run may have ${maxPendingCalls} crypto and compression calls at work: await some first.`);
      if (text.length > maxArgumentLength) throw namedError("OperationError", "The parameters are too large.");
      pending.set(runKey, count + 1);
      try {
        const input: unknown = text === "" ? {} : JSON.parse(text);
        const data = new Uint8Array(bytes ?? new ArrayBuffer(0));
        return op.startsWith("crypto.")
          ? await crypto.call(op.slice(7), input, data)
          : await compression.call(runKey, op.slice(9), input, data);
      } finally {
        const left = (pending.get(runKey) ?? 1) - 1;
        if (left > 0) pending.set(runKey, left);
        else pending.delete(runKey);
      }
    },
    forget(runKey) {
      pending.delete(runKey);
      compression.forget(runKey);
    },
  };
}

/** An Error of the given name. */
export function namedError(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}

/** Name, message and code of an error: what a program may see of it. Never the stack, which shows the host's files. */
export function shownError(error: unknown): { name: string; message: string; code?: string } {
  if (!(error instanceof Error)) return { name: "Error", message: "The operation failed." };
  const { code } = error as { code?: unknown };
  return { name: error.name, message: error.message, ...(typeof code === "string" ? { code } : {}) };
}
