import type pg from "pg";
import { bySecrets, type CredentialRow } from "./credential-row.ts";

interface Asked {
  digest: Buffer;
  resolve(row: CredentialRow | null): void;
  reject(error: unknown): void;
}

const lookups = new WeakMap<pg.Pool, (digest: Buffer) => Promise<CredentialRow | null>>();

/**
 * Finds a credential by the digest of its secret, by an indexed read on the primary that begins after it was asked for: nothing is kept from
 * one read for the next. Requests that came in the same turn of the event loop share one statement, so a burst costs the database and
 * this process one round trip instead of one each.
 */
export function lookUpSecret(pool: pg.Pool, digest: Buffer): Promise<CredentialRow | null> {
  let lookUp = lookups.get(pool);
  if (!lookUp) {
    lookUp = createLookup(pool);
    lookups.set(pool, lookUp);
  }
  return lookUp(digest);
}

function createLookup(pool: pg.Pool): (digest: Buffer) => Promise<CredentialRow | null> {
  let asked: Asked[] = [];
  const read = async (batch: Asked[]): Promise<void> => {
    try {
      const { rows } = await pool.query<CredentialRow & { digest: Buffer }>({ ...bySecrets, values: [batch.map(({ digest }) => digest)] });
      for (const { digest, resolve } of batch) resolve(rows.find((row) => row.digest.equals(digest)) ?? null);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  };
  return (digest) =>
    new Promise((resolve, reject) => {
      if (asked.length === 0) {
        setImmediate(() => {
          const batch = asked;
          asked = [];
          void read(batch);
        });
      }
      asked.push({ digest, resolve, reject });
    });
}
