import { z } from "zod";
import type { JobHandlers } from "#platform/jobs.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { findAccount, membershipIn } from "./account.ts";
import { type AuditSource, recordAuditOf } from "./audit.ts";
import { mailJob, sendEnqueuedMail } from "./mailing.ts";
import { mailReset } from "./password-reset.ts";
import { authSweepJob } from "./sweep.ts";

const refusedSignIn = z.object({
  email: z.string(),
  address: z.string(),
  orgSlug: z.string().nullable(),
  requestId: z.string(),
  userAgent: z.string().nullable(),
  reason: z.string(),
  locked: z.boolean(),
});

const forgotten = z.object({ email: z.string(), orgSlug: z.string().nullable(), address: z.string(), requestId: z.string() });

/** The service's durable jobs. */
export function authJobs(deps: Deps): JobHandlers {
  return {
    "auth.sign-in-refused": (payload) => recordRefusedSignIn(deps, refusedSignIn.parse(payload)),
    "auth.password-forgot": (payload) => mailReset(deps, forgotten.parse(payload)),
    ...authSweepJob(deps),
    [mailJob]: (payload) => sendEnqueuedMail(deps, payload),
  };
}

/**
 * Tells the audit of every organisation concerned that a sign-in was refused. A job, so that the request does the same work for an email
 * without an account, of which only the organisation that was named hears.
 */
async function recordRefusedSignIn(deps: Deps, attempt: z.infer<typeof refusedSignIn>): Promise<void> {
  const account = await findAccount(deps.db, { email: attempt.email });
  const sources: Pick<AuditSource, "org_id" | "actor">[] = [];
  const named = account && attempt.orgSlug !== null ? membershipIn(account, attempt.orgSlug) : null;
  const concerned = named ? [named.membership] : attempt.orgSlug === null ? (account?.memberships ?? []) : [];
  for (const { org, member_id } of concerned) {
    sources.push({ org_id: org.id, actor: { kind: "member", id: member_id, name: account?.name ?? attempt.email } });
  }
  if (!named && attempt.orgSlug !== null) {
    const org: { id: string } | undefined = await deps.db("orgs").where({ slug: attempt.orgSlug }).first("id");
    if (org) sources.push({ org_id: org.id, actor: { kind: "anonymous", id: attempt.email, name: attempt.email } });
  }
  await deps.db.transaction(async (trx) => {
    for (const source of sources) await recordRefusal(deps, trx, source, attempt);
  });
}

async function recordRefusal(
  deps: Deps,
  db: Db,
  source: Pick<AuditSource, "org_id" | "actor">,
  attempt: z.infer<typeof refusedSignIn>,
): Promise<void> {
  const { address, requestId, reason, email, userAgent, locked } = attempt;
  await recordAuditOf(
    db,
    { ...source, address, request_id: requestId },
    { action: "sign-in.refused", target: { kind: "account", id: email, name: email }, detail: { reason, user_agent: userAgent, locked } },
  );
  if (locked) {
    await deps.events.publish(db, { org_id: source.org_id, kind: "anomaly.lockout", payload: { email, address, member: source.actor } });
  }
}
