import type { Argon2Parameters } from "node:crypto";
import { Worker } from "node:worker_threads";
import { entryFile } from "#platform/program-files.ts";
import type { HashAnswer, HashQuestion } from "./password-worker.ts";

/** A thread that derives Argon2id tags, one after another, at a lower priority than that of the thread that answers requests. */
export interface HashThread {
  /** Rejects when the thread ends before it has answered; the next call starts another. */
  derive(parameters: Argon2Parameters): Promise<Buffer>;
}

/** Makes a hash thread. It starts with the first hash and does not keep the process alive. */
export function createHashThread(): HashThread {
  let worker: Worker | null = null;
  let lastId = 0;
  const asked = new Map<number, { resolve(tag: Buffer): void; reject(error: Error): void }>();

  const start = (): Worker => {
    const started = new Worker(entryFile("api/services/auth/password-worker"), { execArgv: [] });
    started.on("message", (answer: HashAnswer) => {
      const waiting = asked.get(answer.id);
      asked.delete(answer.id);
      if ("tag" in answer) waiting?.resolve(Buffer.from(answer.tag.buffer, answer.tag.byteOffset, answer.tag.byteLength));
      else waiting?.reject(new Error(`the password could not be hashed: ${answer.problem}`));
    });
    started.on("error", (error: unknown) => end(started, error));
    started.on("exit", (code) => end(started, `exit code ${code}`));
    started.unref();
    return started;
  };

  const end = (ended: Worker, cause: unknown): void => {
    if (worker !== ended) return;
    worker = null;
    for (const waiting of asked.values()) waiting.reject(new Error("the thread that hashes passwords ended", { cause }));
    asked.clear();
  };

  return {
    derive(parameters) {
      return new Promise((resolve, reject) => {
        worker ??= start();
        lastId += 1;
        asked.set(lastId, { resolve, reject });
        worker.postMessage({ id: lastId, parameters } satisfies HashQuestion);
      });
    },
  };
}
