import { createHash, type KeyObject, sign } from "node:crypto";
import type { AssignmentHead } from "#platform/assignment.ts";
import { readClaimKey } from "#platform/claim-keys.ts";
import { databaseTls } from "#platform/database-tls.ts";
import type { Deps } from "../deps.ts";
import { assignmentOf } from "../services/kaps/assignment.ts";
import { effectiveSecrets } from "../services/secrets/secrets.ts";
import { kapLimits } from "./limits.ts";

/** What a runtime is given to serve a kap: its secrets, its database login, its way back to the API, and its program. */
export interface ComposedAssignment {
  assignment: AssignmentHead;
  programBytes: Buffer;
}

const validSeconds = 60;
const keys = new Map<string, KeyObject>();

function privateKey(encoded: string): KeyObject {
  let key = keys.get(encoded);
  if (!key) {
    key = readClaimKey(encoded);
    keys.set(encoded, key);
  }
  return key;
}

/**
 * An assignment as runtimes take it, and from nobody but this deployment's API: a compact JWS (EdDSA), a line feed, and the program's bytes (bundle,
 * map, code cache), whose lengths and digest are signed.
 */
export function signAssignment(claimKey: string, { assignment, programBytes }: ComposedAssignment): Buffer {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${encode({ alg: "EdDSA", typ: "kap-assignment" })}.${encode(assignment)}`;
  const signature = sign(null, Buffer.from(signed), privateKey(claimKey)).toString("base64url");
  return Buffer.concat([Buffer.from(`${signed}.${signature}\n`), programBytes]);
}

/** Composes the assignment of a kap as it stands now. Throws when the kap does not exist any more. */
export async function composeAssignment(deps: Deps, kapId: string, runtime: { id: string; token: string }): Promise<ComposedAssignment> {
  const kap = await assignmentOf(deps.db, kapId);
  if (!kap) throw new Error(`the kap ${kapId} is gone`);
  // After the revision, never before or beside it: newer secrets under an older revision are fetched again, the other way round they would never be.
  const secrets = await effectiveSecrets(deps.db, deps.keyring, kapId);
  const now = Math.floor(Date.now() / 1000);
  const database = new URL(deps.config.databaseUrl);
  const [host, port] = (deps.config.kapDatabaseHost ?? database.host).split(":");
  const program = [Buffer.from(kap.bundle), Buffer.from(kap.bundle_map ?? ""), kap.code_cache ?? Buffer.alloc(0)] as const;
  const programBytes = Buffer.concat(program);
  const [bundle, map, cache] = program;
  const assignment: AssignmentHead = {
    iat: now,
    exp: now + validSeconds,
    runtime_id: runtime.id,
    kap_id: kapId,
    org_id: kap.org_id,
    slug: kap.slug,
    name: kap.name,
    address: deps.addresses.kap(kap.slug),
    revision: kap.revision,
    version_id: kap.version_id,
    program: {
      bundle_bytes: bundle.length,
      map_bytes: map.length,
      cache_bytes: cache.length,
      sha256: createHash("sha256").update(programBytes).digest("hex"),
    },
    triggers: kap.triggers,
    secrets,
    database: {
      host: host ?? "127.0.0.1",
      port: Number(port ?? 5432),
      database: decodeURIComponent(database.pathname.slice(1)),
      user: kap.role_name,
      password: deps.keyring.open(kap.role_password, `kap-role:${kapId}`),
      schema: kap.schema_name,
      tls: databaseTls(deps.config.databaseUrl),
    },
    api: { url: deps.config.internalUrl ?? "", token: runtime.token },
    limits: kapLimits(deps.config),
  };
  return { assignment, programBytes };
}
