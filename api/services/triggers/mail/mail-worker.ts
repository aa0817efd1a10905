import { parentPort, workerData } from "node:worker_threads";
import { createLookUp } from "./look-up.ts";
import { type MailFacts, readMail } from "./read-mail.ts";

/** What the mail reader asks of its thread, and hears. */
export interface MailQuestion {
  id: number;
  bytes: Uint8Array<ArrayBuffer>;
  facts: MailFacts;
}
export type MailAnswer = { id: number; ok: true; mail: Awaited<ReturnType<typeof readMail>> } | { id: number; ok: false; message: string };

const port = parentPort;
if (!port) throw new Error("this file runs as a worker thread");
const lookUp = createLookUp((workerData as { dnsServers: string[] }).dnsServers);
port.on("message", ({ id, bytes, facts }: MailQuestion) => {
  readMail(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), facts, lookUp).then(
    (mail) => port.postMessage({ id, ok: true, mail } satisfies MailAnswer, [mail.frame.buffer]),
    (error: unknown) =>
      port.postMessage({ id, ok: false, message: error instanceof Error ? error.message : String(error) } satisfies MailAnswer),
  );
});
