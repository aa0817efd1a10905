import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newId } from "../../platform/ids.ts";
import { mintSecret } from "../../platform/secrets.ts";
import { createTestDatabase, type TestDatabase } from "../../test/harness/database.ts";
import { lookUpSecret } from "./credential-lookup.ts";

let database: TestDatabase;
let statements = 0;
let pool: pg.Pool;
const orgId = newId();

beforeAll(async () => {
  database = await createTestDatabase();
  await database.postgres.knex("orgs").insert({ id: orgId, slug: "acme", name: "Acme" });
  pool = new pg.Pool({ connectionString: database.url, options: "-c search_path=kapstone", max: 4 });
  pool.on("acquire", () => statements++);
});
afterAll(async () => {
  await pool.end();
  await database.close();
});

async function newKey(): Promise<{ id: string; digest: Buffer }> {
  const id = newId();
  const { digest, keyPrefix } = mintSecret("sk_live_");
  await database.postgres.knex("credentials").insert({ id, org_id: orgId, kind: "api_key", name: "k", key_prefix: keyPrefix });
  await database.postgres.knex("credential_secrets").insert({ digest, credential_id: id });
  return { id, digest };
}

test("what is asked in one turn shares a statement, and each hears of its own", async () => {
  const keys = await Promise.all(Array.from({ length: 20 }, newKey));
  const unknown = mintSecret("sk_live_").digest;
  statements = 0;
  const asked = [...keys.map(({ digest }) => digest), unknown, (keys[0] as { digest: Buffer }).digest];
  const found = await Promise.all(asked.map((digest) => lookUpSecret(pool, digest)));
  expect(found.map((row) => row?.id)).toEqual([...keys.map(({ id }) => id), undefined, keys[0]?.id]);
  expect(statements).toBe(1);
});

test("nothing is kept: what is revoked, or given back, is seen by the next to ask", async () => {
  const { id, digest } = await newKey();
  const revoke = (revoked_at: Date | null) => database.postgres.knex("credentials").where({ id }).update({ revoked_at });
  for (let round = 0; round < 20; round++) {
    expect((await lookUpSecret(pool, digest))?.id).toBe(id);
    await revoke(new Date());
    expect(await lookUpSecret(pool, digest)).toBeNull();
    await revoke(null);
  }
});

test("when the database is away everybody who asked hears of it, and the next to ask is answered", async () => {
  const { id, digest } = await newKey();
  const closed = new pg.Pool({ connectionString: database.url });
  await closed.end();
  const settled = await Promise.allSettled([lookUpSecret(closed, digest), lookUpSecret(closed, digest)]);
  expect(settled.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect((await lookUpSecret(pool, digest))?.id).toBe(id);
});
