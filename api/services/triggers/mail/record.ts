import pg from "pg";
import { newId } from "#platform/ids.ts";
import { addJobSql } from "#platform/jobs.ts";
import type { PoolClient } from "#platform/postgres.ts";
import type { Deps } from "../../../deps.ts";
import { mailRunJob } from "../../runs/finish.ts";
import type { Accepted, Envelope } from "./envelope.ts";
import { type Inbox, inboxColumns, inboxTrigger, type MailRefusal, refusalOf } from "./recipient.ts";

/** A mail that has come whole. */
export interface ArrivedMail {
  envelope: Envelope;
  dedupeKey: Buffer;
  objectKey: string;
  sizeBytes: number;
  /** Of a small mail: its bytes, which become a row. Null when they are an object already. */
  bytes: Buffer | null;
}

interface Judged extends Inbox {
  run_id: string;
  earlier_run_id: string | null;
}

const duplicateHours = 24;

/**
 * One statement judges every recipient and, when none is refused, writes for each kap that has not had this mail within 24 hours the run, the message, what the run
 * is given, the day's count and the run's job.
 */
const statement = `
with judged as materialized (
  select ${inboxColumns("$8::int")}, k.org_id, k.current_version_id, x.run_id, x.envelope, m.run_id as earlier_run_id
  from jsonb_to_recordset($1::jsonb) as x(kap_id uuid, run_id uuid, envelope jsonb)
  join kaps k on k.id = x.kap_id
  ${inboxTrigger}
  left join mail_messages m on m.kap_id = k.id and m.dedupe_key = $2 and m.received_at > now() - make_interval(hours => ${duplicateHours})
), fresh as materialized (
  select * from judged
  where earlier_run_id is null and not exists (
    select from judged j where j.earlier_run_id is null and (j.state = 'active' and j.enabled and not j.is_full) is not true)
), run as (
  insert into runs (id, kap_id, org_id, version_id, trigger_id, trigger_kind, status)
  select run_id, kap_id, org_id, current_version_id, trigger_id, 'inbox', 'queued' from fresh
), message as (
  insert into mail_messages as m (kap_id, dedupe_key, run_id, object_key, size_bytes) select kap_id, $2, run_id, $3, $4 from fresh
  on conflict (kap_id, dedupe_key) do update
    set received_at = excluded.received_at, run_id = excluded.run_id, object_key = excluded.object_key, size_bytes = excluded.size_bytes
    where m.received_at <= now() - make_interval(hours => ${duplicateHours})
), raw as (
  insert into mail_bytes (object_key, bytes) select $3, $5::bytea where $5::bytea is not null and exists (select from fresh)
), payload as (
  insert into run_payloads (run_id, object_key, envelope, expires_at) select run_id, $3, $6::jsonb || envelope, now() + make_interval(days => $7::int) from fresh
), used as (
  insert into kap_usage as u (kap_id, day, mail_messages) select kap_id, (now() at time zone 'utc')::date, 1 from fresh order by kap_id
  on conflict (kap_id, day) do update set mail_messages = u.mail_messages + 1
)
select j.kap_id, j.state, j.disabled, j.trigger_id, j.enabled, j.is_full, j.run_id, j.earlier_run_id,
       case when f.run_id is not null then ${addJobSql(mailRunJob, "json_build_object('run_id', f.run_id, 'attempt', 1)")} end as job_id
from judged j left join fresh f on f.run_id = j.run_id`;

/**
 * Writes a mail for its recipients in one transaction, durable when this answers. When one of the kaps takes it no more nothing is written and the
 * whole mail is refused: it has one answer, so it is sent again and each recipient told apart.
 */
export async function recordMail(
  deps: Pick<Deps, "postgres" | "config">,
  mail: ArrivedMail,
): Promise<{ accepted: Accepted[] } | MailRefusal> {
  const { recipients, from, remote_address, helo, received_at, tls } = mail.envelope;
  const addresses = new Map<string, string[]>();
  for (const { kap_id, address } of recipients) addresses.set(kap_id, [...(addresses.get(kap_id) ?? []), address]);
  const kapIds = [...addresses.keys()].sort();
  const values = [
    JSON.stringify(kapIds.map((kap_id) => ({ kap_id, run_id: newId(), envelope: { to: addresses.get(kap_id) } }))),
    mail.dedupeKey,
    mail.objectKey,
    mail.sizeBytes,
    mail.bytes,
    JSON.stringify({ from, remote_address, helo, received_at, tls }),
    deps.config.payloadDays,
    deps.config.mailsPerHour,
  ];
  // One mail at a time per kap: so the hour's count is exact on all replicas. In order, so that no two wait for each other; in a statement of its own, so that the next one
  // sees what the mail before it has written.
  const locks = kapIds.map((id) => `select pg_advisory_xact_lock(hashtextextended(${pg.escapeLiteral(`mail ${id}`)}, 4207011003))`);
  const judged = await durably(deps, locks, async (client) => {
    const { rows } = await client.query<Judged>({ name: "mail-accept", text: statement, values });
    return new Map(rows.map((row) => [row.kap_id, row]));
  });
  const accepted: Accepted[] = [];
  for (const kapId of kapIds) {
    const [address = ""] = addresses.get(kapId) ?? [];
    const inbox = judged.get(kapId);
    if (!inbox) return { code: 451, message: `There is no mailbox ${address}. Please try again.` };
    const refusal = inbox.earlier_run_id === null ? refusalOf(inbox, address, deps.config.mailsPerHour) : null;
    // It was taken at RCPT and is not now.
    if (refusal) return refusal.code === 452 ? refusal : { code: 451, message: `${refusal.message} Please try again.` };
    accepted.push({ address, kap_id: kapId, run_id: inbox.earlier_run_id ?? inbox.run_id, duplicate: inbox.earlier_run_id !== null });
  }
  return { accepted };
}

/** Connections of the gateway's pool that mails may hold at once: calls of kaps come first. */
const atOnce = 4;
const turns = new WeakMap<object, { free: number; waiting: (() => void)[] }>();

/** A transaction on prepared statements, after `first`, which go with its begin. Commits of the pool do not wait for the disk; this one does. */
async function durably<T>(
  { postgres }: Pick<Deps, "postgres">,
  first: readonly string[],
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const turn = turns.get(postgres) ?? { free: atOnce, waiting: [] };
  turns.set(postgres, turn);
  if (turn.free > 0) turn.free -= 1;
  else await new Promise<void>((resolve) => turn.waiting.push(resolve));
  try {
    const client = await postgres.hot.connect();
    try {
      await client.query(["begin", "set local synchronous_commit = on", ...first].join("; "));
      const result = await work(client);
      await client.query("commit");
      client.release();
      return result;
    } catch (error) {
      client.release(true); // with the connection the transaction ends
      throw error;
    }
  } finally {
    const next = turn.waiting.shift();
    if (next) next();
    else turn.free += 1;
  }
}
