import { Worker } from "node:worker_threads";
import { entryFile } from "#platform/program-files.ts";
import type { MailAnswer, MailQuestion } from "./mail-worker.ts";
import type { MailFacts, ReadMail } from "./read-mail.ts";

/** The mail could not be read. `again` tells whether another try may go better: the thread was ended, perhaps for another mail's sake. */
export class UnreadableMail extends Error {
  override name = "UnreadableMail";
  readonly again: boolean;
  constructor(message: string, again: boolean) {
    super(message);
    this.again = again;
  }
}

/** Reads mails in a thread of its own, capped in memory and killed when one takes too long: other people's mails never run on the API's thread. */
export interface MailReader {
  read(bytes: Uint8Array<ArrayBuffer>, facts: MailFacts): Promise<ReadMail>;
  close(): Promise<void>;
}

/** A mail has at most 30 MiB; its texts are kept twice while it is read. */
const heapMb = 384;
const deadlineMs = 30_000;
/** Mails at the same time in the thread, which wait for the DNS most of their time, and the bytes they have together (one alone may have more). */
const atOnce = 64;
const bytesAtOnce = 64 * 1024 * 1024;

interface Reading {
  question: MailQuestion;
  sizeBytes: number;
  resolve(mail: ReadMail): void;
  reject(error: Error): void;
  timer?: NodeJS.Timeout;
}

/**
 * Opens a reader; its thread starts with the first mail and is replaced when it has ended. It asks the given name servers (`address` or `address:port`)
 * about senders, those of the machine when there are none.
 */
export function openMailReader(dnsServers: readonly string[]): MailReader {
  let worker: Worker | null = null;
  let lastId = 0;
  const waiting: Reading[] = [];
  const running = new Map<number, Reading>();

  const start = (): Worker => {
    const started = new Worker(entryFile("api/services/triggers/mail/mail-worker"), {
      resourceLimits: { maxOldGenerationSizeMb: heapMb },
      execArgv: [],
      workerData: { dnsServers },
    });
    started.on("message", (answer: MailAnswer) => {
      const reading = running.get(answer.id);
      if (!reading) return;
      clearTimeout(reading.timer);
      running.delete(answer.id);
      if (answer.ok) reading.resolve(answer.mail);
      else reading.reject(new UnreadableMail(`the mail cannot be parsed: ${answer.message}`, false));
      next();
    });
    started.on("error", (error: unknown) =>
      end(started, `the mail needed more than it may: ${error instanceof Error ? error.message : String(error)}`),
    );
    started.on("exit", () => end(started, "the thread that read the mail ended"));
    started.unref();
    return started;
  };

  const bytesRunning = (): number => running.values().reduce((sum, reading) => sum + reading.sizeBytes, 0);

  /** Ends a thread with everything in it; what waits goes on in a new one. */
  const end = (ended: Worker, reason: string): void => {
    if (worker !== ended) return;
    worker = null;
    void ended.terminate();
    for (const reading of running.values()) {
      clearTimeout(reading.timer);
      reading.reject(new UnreadableMail(reason, true));
    }
    running.clear();
    next();
  };

  const next = (): void => {
    for (let reading = waiting[0]; reading; reading = waiting[0]) {
      if (running.size >= atOnce || (running.size > 0 && bytesRunning() + reading.sizeBytes > bytesAtOnce)) return;
      waiting.shift();
      worker ??= start();
      const current = worker;
      running.set(reading.question.id, reading);
      reading.timer = setTimeout(() => end(current, `a mail was not read within ${deadlineMs / 1_000} s`), deadlineMs);
      current.postMessage(reading.question, [reading.question.bytes.buffer]);
    }
  };

  return {
    read(bytes, facts) {
      return new Promise((resolve, reject) => {
        waiting.push({ question: { id: ++lastId, bytes, facts }, sizeBytes: bytes.length, resolve, reject });
        next();
      });
    },
    async close() {
      const current = worker;
      if (current) end(current, "the reader was closed");
      await current?.terminate();
    },
  };
}
