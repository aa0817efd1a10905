import { afterAll, expect, test } from "vitest";
import { createTestDatabase } from "./database.ts";

const databases = await Promise.all([createTestDatabase(), createTestDatabase()]);
afterAll(() => Promise.all(databases.map((database) => database.close())));

test("a test database is migrated, belongs to a login without superuser rights, and shares nothing with another", async () => {
  const [one, other] = databases as [(typeof databases)[0], (typeof databases)[0]];
  const { rows } = await one.postgres.knex.raw("select rolsuper, rolcreaterole, rolcreatedb from pg_roles where rolname = current_user");
  expect(rows).toEqual([{ rolsuper: false, rolcreaterole: true, rolcreatedb: true }]);
  expect((await one.postgres.knex("migrations").select("name")).length).toBeGreaterThan(0);
  await one.postgres.knex.raw("create table only_here (id int)");
  await expect(other.postgres.knex.raw("select * from only_here")).rejects.toThrow(/does not exist/);
});
