import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { simpleParser } from "mailparser";

/** A mail the platform has sent, from the data folder's outbox. */
export interface SentMail {
  to: string;
  subject: string;
  text: string;
}

/** The mails in the outbox, oldest first. */
export async function readOutbox(dataDir: string): Promise<SentMail[]> {
  const folder = join(dataDir, "outbox");
  const names = await readdir(folder).catch(() => []);
  const mails = await Promise.all(
    names
      .filter((name) => name.endsWith(".eml"))
      .sort()
      .map(async (name) => simpleParser(await readFile(join(folder, name)))),
  );
  return mails.map((mail) => ({ to: [mail.to ?? []].flat()[0]?.text ?? "", subject: mail.subject ?? "", text: mail.text ?? "" }));
}
