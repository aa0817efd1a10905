import { addJob } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import type { OutgoingMessage } from "../../mail.ts";

/** The durable job that sends one mail. */
export const mailJob = "auth.mail";
const context = "auth.mail";

/** Mails exactly when the caller's transaction commits. The message waits sealed: its link is as good as a password until it is used. */
export async function enqueueMail(deps: Deps, db: Db, message: OutgoingMessage): Promise<void> {
  await addJob(db, mailJob, { sealed: deps.keyring.seal(JSON.stringify(message), context).toString("base64") });
}

/** Sends what `enqueueMail` put away. A mail may be sent twice when a process dies between sending and saying so. */
export async function sendEnqueuedMail(deps: Deps, payload: unknown): Promise<void> {
  const { sealed } = payload as { sealed: string };
  await deps.mail.send(JSON.parse(deps.keyring.open(Buffer.from(sealed, "base64"), context)) as OutgoingMessage);
}
