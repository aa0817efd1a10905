import { once } from "node:events";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { childrenOf, residentMb } from "./processes.ts";

/** Measures memory in a thread of its own: reading /proc must not slow what is measured beside it. */
export interface MemoryWatch {
  /** Watches a supervisor and its children; the function it gives ends that and answers the highest sum it saw, in MiB. */
  watch(supervisorPid: number): () => Promise<number>;
  close(): Promise<void>;
}

export function openMemoryWatch(): MemoryWatch {
  const worker = new Worker(new URL(import.meta.url));
  return {
    watch(supervisorPid) {
      worker.postMessage(supervisorPid);
      return async () => {
        const answer = once(worker, "message");
        worker.postMessage("stop");
        const [peakMb] = (await answer) as [number];
        return peakMb;
      };
    },
    async close() {
      await worker.terminate();
    },
  };
}

const lookMs = 15;
/** Children come and go; finding them means reading every process of the machine. */
const looksPerSearch = 12;

if (!isMainThread && parentPort) {
  const port = parentPort;
  let timer: NodeJS.Timeout | undefined;
  let peakMb = 0;
  port.on("message", (message: number | "stop") => {
    clearInterval(timer);
    if (message === "stop") {
      port.postMessage(peakMb);
      return;
    }
    peakMb = 0;
    let looks = 0;
    let family: number[] = [];
    timer = setInterval(() => {
      if (looks++ % looksPerSearch === 0) family = [message, ...childrenOf(message)];
      peakMb = Math.max(
        peakMb,
        family.reduce((sum, pid) => sum + residentMb(pid), 0),
      );
    }, lookMs);
  });
}
