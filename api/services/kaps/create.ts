import { randomBytes } from "node:crypto";
import { newId } from "#platform/ids.ts";
import { addJob } from "#platform/jobs.ts";
import { kapConnectionLimit, kapRoleContext, platformDatabase, provisionKapDatabase } from "#platform/kap-database.ts";
import type { Db } from "#platform/postgres.ts";
import type { Deps } from "../../deps.ts";
import { type Actor, actorOf, type Caller } from "../../http/caller.ts";
import type { Diagnostic } from "./build/build-contract.ts";
import { type BuiltProgram, buildProgram } from "./build-program.ts";
import type { SourceFile } from "./file-set.ts";
import { type KapRow, recordKapChange } from "./kap.ts";
import { insertVersion } from "./save.ts";
import { isAllowedSlug, slugOf, suffixedSlug } from "./slug.ts";
import { mintToken } from "./token.ts";
import type { VersionRow } from "./version.ts";

const slugAttempts = 8;

/** A kap as asked for. */
export interface NewKap {
  name: string;
  mainFile: string;
  files: readonly SourceFile[];
  audience: KapRow["audience"];
  strict: boolean;
}

export interface CreatedKap {
  kap: KapRow;
  version: VersionRow;
  diagnostics: Diagnostic[];
  bypassToken: string;
}

/**
 * Creates a kap with its first version. One transaction writes the kap, version 1, its files and bundle, the enabled request trigger, the token
 * `default`, the history and its PostgreSQL schema and role: all of it is there, or nothing. The bucket follows after the commit, by a
 * durable job and at once.
 */
export async function createKap(
  deps: Deps,
  caller: Caller,
  client: string | null,
  wanted: NewKap,
  signal: AbortSignal,
): Promise<CreatedKap> {
  const program = await buildProgram(
    deps,
    { files: wanted.files, mainFile: wanted.mainFile, strict: wanted.strict, locked: [], owner: caller.org.id },
    signal,
  );
  const actor = actorOf(caller);
  const created = await deps.db.transaction((trx) => insertKap(deps, trx, { caller, actor, client, wanted, program }));
  await deps.objects.ensureBucket(created.kap.bucket).catch((error: unknown) => {
    deps.log.warn({ err: error, kap_id: created.kap.id }, "the bucket of a new kap was not made at once; its job makes it");
  });
  return { ...created, diagnostics: program.diagnostics };
}

interface Insertion {
  caller: Caller;
  actor: Actor;
  client: string | null;
  wanted: NewKap;
  program: BuiltProgram;
}

async function insertKap(
  deps: Deps,
  trx: Db,
  { caller, actor, client, wanted, program }: Insertion,
): Promise<Omit<CreatedKap, "diagnostics">> {
  const id = newId();
  const plainId = id.replaceAll("-", "");
  const password = randomBytes(32).toString("base64url");
  const fields = {
    id,
    org_id: caller.org.id,
    workspace_id: caller.workspaceId,
    name: wanted.name,
    audience: wanted.audience,
    schema_name: `kap_${plainId}`,
    role_name: `kap_${plainId}`,
    role_password: deps.keyring.seal(password, kapRoleContext(id)),
    bucket: `kap-${plainId}`,
    created_by: JSON.stringify(actor),
  };
  const slug = await insertWithFreeSlug(trx, fields, wanted.name);
  const version = await insertVersion(trx, {
    kapId: id,
    sequence: 1,
    mainFile: wanted.mainFile,
    files: wanted.files,
    program,
    restoredFrom: null,
    actor,
    client,
  });
  const [kap]: KapRow[] = await trx("kaps").where({ id }).update({ current_version_id: version.id }).returning("*");
  if (!kap) throw new Error(`the kap ${slug} was not written`);
  await trx("kap_triggers").insert({
    id: newId(),
    kap_id: id,
    kind: "request",
    file_path: wanted.mainFile,
    created_by: JSON.stringify(actor),
  });
  const { secret } = await mintToken(trx, deps.keyring, { kapId: id, kind: "bypass", name: "default", actor });
  await recordKapChange(trx, caller, client, {
    kap_id: id,
    kind: "created",
    detail: { name: wanted.name, audience: wanted.audience, version_id: version.id },
  });
  await addJob(trx, "kaps.ensure-bucket", { kap_id: id }, { key: `kaps.ensure-bucket:${id}` });
  await deps.kapChanged(trx, id);
  // Last, because it makes other creations wait until this one commits: they all join one group of roles.
  await provisionKapDatabase(trx, {
    schemaName: kap.schema_name,
    roleName: kap.role_name,
    password,
    databaseName: platformDatabase(deps.config.databaseUrl),
    connectionLimit: kapConnectionLimit,
  });
  return { kap, version, bypassToken: secret };
}

/** Inserts the kap under the slug its name asks for, or with a short suffix while that is taken or reserved. */
export async function insertWithFreeSlug(trx: Db, fields: object, name: string): Promise<string> {
  const base = slugOf(name);
  for (let attempt = 0; attempt < slugAttempts; attempt++) {
    const slug = attempt === 0 ? base : suffixedSlug(base);
    if (!isAllowedSlug(slug)) continue;
    const rows: { slug: string }[] = await trx("kaps")
      .insert({ ...fields, slug })
      .onConflict("slug")
      .ignore()
      .returning("slug");
    if (rows[0]) return slug;
  }
  throw new Error(`no free slug was found for the name ${name}`);
}
