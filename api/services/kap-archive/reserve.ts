import { randomBytes } from "node:crypto";
import { z } from "zod";
import { newId } from "#platform/ids.ts";
import { addJob } from "#platform/jobs.ts";
import { dropKapDatabase, kapConnectionLimit, platformDatabase, provisionKapDatabase } from "#platform/kap-database.ts";
import type { Deps } from "../../deps.ts";

/** The durable job that removes what an import that never ended has left. */
export const discardJob = "kap-archive.discard";
/** Longer than an import can take. */
const discardAfterMs = 2 * 3_600_000;

/** Where an import loads its data: a schema, role and bucket of their own, which no kap has yet. */
export interface Reserved {
  id: string;
  schemaName: string;
  roleName: string;
  password: string;
  bucket: string;
}

/**
 * Makes schema, role and bucket for a kap to be. They are there before the kap, because only the kap's own role may load its database, and nobody logs in as a role that
 * an open transaction has made. A job made with them removes them if no kap has them by then.
 */
export async function reserve(deps: Deps): Promise<Reserved> {
  const id = newId();
  const plainId = id.replaceAll("-", "");
  const reserved = {
    id,
    schemaName: `kap_${plainId}`,
    roleName: `kap_${plainId}`,
    password: randomBytes(32).toString("base64url"),
    bucket: `kap-${plainId}`,
  };
  await deps.db.transaction(async (trx) => {
    await addJob(trx, discardJob, { kap_id: id }, { key: `${discardJob}:${id}`, runAt: new Date(Date.now() + discardAfterMs) });
    await provisionKapDatabase(trx, {
      ...reserved,
      databaseName: platformDatabase(deps.config.databaseUrl),
      connectionLimit: kapConnectionLimit,
    });
  });
  await deps.objects.ensureBucket(reserved.bucket);
  return reserved;
}

const payload = z.object({ kap_id: z.uuid() });

/** Removes the schema, role and bucket of an import that made no kap. Does nothing for one that did. */
export async function discardReserved(deps: Deps, input: unknown): Promise<void> {
  const { kap_id } = payload.parse(input);
  if (await deps.db("kaps").where({ id: kap_id }).first("id")) return;
  const plainId = kap_id.replaceAll("-", "");
  await dropKapDatabase(deps.db, { schemaName: `kap_${plainId}`, roleName: `kap_${plainId}` });
  await deps.objects.deleteBucket(`kap-${plainId}`);
}
