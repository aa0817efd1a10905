import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTransport } from "nodemailer";
import { newId } from "#platform/ids.ts";

/** A mail the platform sends: plain text, and HTML where it helps. */
export interface OutgoingMessage {
  to: string;
  subject: string;
  text: string;
  html?: string;
}

/** The outgoing-mail port: an SMTP relay in production; on a laptop files in the data folder's outbox, shown in the console. */
export interface OutgoingMail {
  send(message: OutgoingMessage): Promise<void>;
}

/** Sends through an SMTP relay. */
export function relayMail(url: string, from: string): OutgoingMail {
  const transport = createTransport({ url, connectionTimeout: 10_000, socketTimeout: 20_000 } as Parameters<typeof createTransport>[0]);
  return {
    async send(message) {
      await transport.sendMail({ from, ...message });
    },
  };
}

/** Writes each mail to `{folder}/{id}.eml`, whole or not at all. */
export function outboxMail(folder: string, from: string): OutgoingMail {
  const transport = createTransport({ streamTransport: true, buffer: true, newline: "windows" });
  return {
    async send(message) {
      await mkdir(folder, { recursive: true });
      const built = await transport.sendMail({ from, ...message });
      const name = join(folder, `${newId()}.eml`);
      await writeFile(`${name}.part`, built.message as Buffer, { mode: 0o600 });
      await rename(`${name}.part`, name);
    },
  };
}
