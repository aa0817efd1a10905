import { createPublicKey, generateKeyPairSync, randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { readClaimKey } from "#platform/claim-keys.ts";
import { keptSecret } from "./kept-secret.ts";

/** Settings that a deployment is given by its operator and a laptop makes for itself, by the variables they are read from. */
export type DeploymentKeys = Record<"KAPSTONE_KEYS" | "KAPSTONE_CLAIM_KEY" | "KAPSTONE_INGEST_TOKEN" | "KAPSTONE_FIRE_TOKEN", string>;

/** The keys of this data folder, made at the first start. Whoever loses `{dataDir}/keys` loses every sealed secret in the database. */
export async function deploymentKeys(dataDir: string): Promise<DeploymentKeys> {
  const folder = join(dataDir, "keys");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const [seal, claim, ingest, fire] = await Promise.all([
    keptSecret(join(folder, "seal.key"), () => randomBytes(32).toString("base64")),
    keptSecret(join(folder, "claim.key"), () =>
      generateKeyPairSync("ed25519").privateKey.export({ format: "der", type: "pkcs8" }).toString("base64"),
    ),
    keptSecret(join(folder, "ingest.token")),
    keptSecret(join(folder, "fire.token")),
  ]);
  return { KAPSTONE_KEYS: seal, KAPSTONE_CLAIM_KEY: claim, KAPSTONE_INGEST_TOKEN: ingest, KAPSTONE_FIRE_TOKEN: fire };
}

/** The public half (SPKI, base64) of a claim key: what runtimes check their assignments with. */
export function claimPublicKey(claimKey: string): string {
  return createPublicKey(readClaimKey(claimKey)).export({ format: "der", type: "spki" }).toString("base64");
}
