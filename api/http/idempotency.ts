import { createHash } from "node:crypto";
import type { Db, Postgres } from "#platform/postgres.ts";
import { invalid, Refusal, refuse } from "./refusal.ts";
import type { Reply } from "./route.ts";

const staleAfter = "5 minutes";

/** What a first request leaves for its repeats. */
export interface IdempotentCall {
  credentialId: string;
  path: string;
  key: string;
  body: Buffer;
}

/** Reads the Idempotency-Key header; refuses one outside 1 to 255 characters. */
export function idempotencyKeyOf(header: string | string[] | undefined): string | null {
  if (header === undefined) return null;
  const key = Array.isArray(header) ? header.join(",") : header;
  if (key.length < 1 || key.length > 255) throw invalid({ path: "Idempotency-Key", message: "must have 1 to 255 characters" });
  return key;
}

/**
 * Runs `act` once for a key: a repeat within 24 hours gets the first answer, without the fields that were shown once and with
 * `"replayed": true`. Another body under the same key is 422; a repeat while the first is still running 409 (decided §2).
 * A refusal frees the key. A first request whose process died frees it after five minutes.
 */
export async function once(
  postgres: Postgres,
  call: IdempotentCall,
  secretFields: readonly string[],
  act: () => Promise<Reply>,
): Promise<Reply> {
  const digest = createHash("sha256").update(call.body).digest();
  const where = [call.credentialId, call.path, call.key] as const;
  const claimed = await postgres.knex.raw<{ rowCount: number }>(
    `insert into idempotency_keys as held (credential_id, path, key, body_digest) values (?, ?, ?, ?)
     on conflict (credential_id, path, key) do update set body_digest = excluded.body_digest, status = null, response = null, created_at = now()
     where held.created_at < now() - interval '24 hours' or (held.status is null and held.created_at < now() - interval '${staleAfter}')`,
    [...where, digest] as string[],
  );
  if (claimed.rowCount === 0) return replay(postgres.knex, where, digest);
  const free = () => postgres.knex("idempotency_keys").where({ credential_id: where[0], path: where[1], key: where[2] }).delete();
  let reply: Reply;
  try {
    reply = await act();
  } catch (error) {
    await free();
    throw error;
  }
  if (reply.stream) await free();
  else {
    await postgres
      .knex("idempotency_keys")
      .where({ credential_id: where[0], path: where[1], key: where[2] })
      .update({
        status: reply.status,
        response: JSON.stringify({ body: withoutFields(reply.body, secretFields), headers: reply.headers ?? {} }),
      });
  }
  return reply;
}

async function replay(db: Db, where: readonly [string, string, string], digest: Buffer): Promise<Reply> {
  const row:
    | { body_digest: Buffer; status: number | null; response: { body: unknown; headers: Record<string, string> } | null }
    | undefined = await db("idempotency_keys")
    .where({ credential_id: where[0], path: where[1], key: where[2] })
    .first("body_digest", "status", "response");
  if (!row) throw refuse("CONFLICT", "the first request with this Idempotency-Key has just been refused: send it again");
  if (!row.body_digest.equals(digest))
    throw invalid({ path: "Idempotency-Key", message: "was used with another body: use a new key for a new request" });
  if (row.status === null || row.response === null) {
    throw new Refusal(409, "CONFLICT", "the first request with this Idempotency-Key is still running: wait for it", {
      headers: { "retry-after": "1" },
    });
  }
  const { body, headers } = row.response;
  const isObject = body !== null && typeof body === "object" && !Array.isArray(body);
  const { "set-cookie": _, ...kept } = headers;
  return { status: row.status, body: isObject ? { ...body, replayed: true } : body, headers: { ...kept, "idempotent-replayed": "true" } };
}

/** A copy of an answer without the dotted fields. */
export function withoutFields(body: unknown, fields: readonly string[]): unknown {
  if (fields.length === 0 || body === null || typeof body !== "object") return body;
  const copy = JSON.parse(JSON.stringify(body)) as Record<string, unknown>;
  for (const field of fields) {
    const steps = field.split(".");
    const last = steps.pop() as string;
    let at: unknown = copy;
    for (const step of steps) at = at !== null && typeof at === "object" ? (at as Record<string, unknown>)[step] : undefined;
    if (at !== null && typeof at === "object") delete (at as Record<string, unknown>)[last];
  }
  return copy;
}

/** Removes keys that are over. */
export async function sweepIdempotencyKeys(db: Db): Promise<void> {
  await db.raw(`delete from idempotency_keys where created_at < now() - interval '24 hours'`);
}
