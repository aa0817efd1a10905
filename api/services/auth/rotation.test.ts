import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { digestSecret, mintSecret } from "../../../platform/secrets.ts";
import { createTestDatabase, type TestDatabase } from "../../../test/harness/database.ts";
import { rotateKey } from "./rotation.ts";

let database: TestDatabase;
const orgId = randomUUID();
beforeAll(async () => {
  database = await createTestDatabase();
  await database.postgres.knex("orgs").insert({ id: orgId, slug: "rotating", name: "Rotating" });
});
afterAll(() => database.close());

const hourMs = 3_600_000;

/** A key in the real database whose time can be moved: hours pass by moving every stored time back. */
class RealKey {
  readonly id = randomUUID();
  readonly #subkind: string;
  constructor(subkind: string) {
    this.#subkind = subkind;
  }

  async mint(expiresInHours: number | null): Promise<string> {
    const { secret, digest, keyPrefix } = mintSecret("sk_live_");
    const expires_at = expiresInHours === null ? null : new Date(Date.now() + expiresInHours * hourMs);
    await database.postgres
      .knex("credentials")
      .insert({ id: this.id, org_id: orgId, kind: "api_key", subkind: this.#subkind, scopes: ["read"], key_prefix: keyPrefix, expires_at });
    await database.postgres.knex("credential_secrets").insert({ digest, credential_id: this.id });
    return secret;
  }

  rotate(overlapHours: number) {
    return database.postgres.knex.transaction((trx) => rotateKey(trx, { id: this.id, subkind: this.#subkind }, overlapHours));
  }

  async pass(hours: number): Promise<void> {
    const { knex } = database.postgres;
    const back = (column: string) => knex.raw("?? - make_interval(hours => ?)", [column, hours]);
    await knex("credentials")
      .where({ id: this.id })
      .update({ expires_at: back("expires_at") });
    await knex("credential_secrets")
      .where({ credential_id: this.id })
      .update({ live_until: back("live_until") });
  }

  revoke() {
    return database.postgres.knex("credentials").where({ id: this.id }).update({ revoked_at: new Date() });
  }

  /** Which of these secrets the look-up of a request would take. */
  async live(secrets: readonly string[]): Promise<string[]> {
    const { rows } = await database.postgres.knex.raw<{ rows: { digest: Buffer }[] }>(
      `select s.digest from credential_secrets s join credentials c on c.id = s.credential_id
       where c.id = ? and (s.live_until is null or s.live_until > now()) and c.revoked_at is null and (c.expires_at is null or c.expires_at > now())`,
      [this.id],
    );
    const found = new Set(rows.map(({ digest }) => digest.toString("hex")));
    return secrets.filter((secret) => found.has(digestSecret(secret).toString("hex")));
  }
}

/** What the contract says of a key (spec 1 §3, decided §3), in a few plain variables. */
interface Model {
  nowHours: number;
  expiresAt: number | null;
  revoked: boolean;
  current: string;
  previous: { secret: string; until: number } | null;
  all: string[];
}
const isExpired = (model: Model): boolean => model.expiresAt !== null && model.expiresAt <= model.nowHours;

function liveIn(model: Model): string[] {
  if (model.revoked || isExpired(model)) return [];
  return [model.current, ...(model.previous && model.previous.until > model.nowHours ? [model.previous.secret] : [])];
}

async function check(model: Model, key: RealKey): Promise<void> {
  const live = await key.live(model.all);
  expect(live.length).toBeLessThanOrEqual(2);
  expect([...live].sort()).toEqual([...liveIn(model)].sort());
}

class Rotate implements fc.AsyncCommand<Model, RealKey> {
  readonly overlapHours: number;
  constructor(overlapHours: number) {
    this.overlapHours = overlapHours;
  }
  check = () => true;
  async run(model: Model, key: RealKey): Promise<void> {
    const rotation = await key.rotate(this.overlapHours);
    if (model.revoked || isExpired(model)) expect(rotation).toBeNull();
    else {
      expect(rotation).not.toBeNull();
      const until = model.nowHours + this.overlapHours;
      model.previous =
        this.overlapHours === 0
          ? null
          : { secret: model.current, until: model.expiresAt === null ? until : Math.min(until, model.expiresAt) };
      model.current = rotation?.secret ?? "";
      model.all.push(model.current);
    }
    await check(model, key);
  }
  toString = () => `rotate(${this.overlapHours})`;
}

class Pass implements fc.AsyncCommand<Model, RealKey> {
  readonly hours: number;
  constructor(hours: number) {
    this.hours = hours;
  }
  check = () => true;
  async run(model: Model, key: RealKey): Promise<void> {
    await key.pass(this.hours);
    model.nowHours += this.hours;
    await check(model, key);
  }
  toString = () => `pass(${this.hours} h)`;
}

class Revoke implements fc.AsyncCommand<Model, RealKey> {
  check = () => true;
  async run(model: Model, key: RealKey): Promise<void> {
    await key.revoke();
    model.revoked = true;
    await check(model, key);
  }
  toString = () => "revoke";
}

test("whatever is rotated, awaited and revoked in whatever order, exactly the secrets the contract names are live", async () => {
  // Hours of the model are whole, those of the database run on: half an hour keeps the two from meeting on the same instant.
  const commands = [
    fc.integer({ min: 0, max: 72 }).map((hours) => new Rotate(hours)),
    fc.constantFrom(0, 1).map((hours) => new Rotate(hours)),
    fc.integer({ min: 1, max: 80 }).map((hours) => new Pass(hours)),
    fc.constant(new Revoke()),
  ];
  await fc.assert(
    fc.asyncProperty(
      fc.commands(commands, { maxCommands: 12 }),
      fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
      async (sequence, expiresInHours) => {
        const key = new RealKey("live");
        const secret = await key.mint(expiresInHours);
        const model: Model = { nowHours: 0, expiresAt: expiresInHours, revoked: false, current: secret, previous: null, all: [secret] };
        await fc.asyncModelRun(() => ({ model, real: key }), sequence);
      },
    ),
    { numRuns: 60 },
  );
});

test("of many rotations at once each gives a secret, and at most two stay: the last, and the one before it", async () => {
  for (const overlapHours of [0, 5]) {
    const key = new RealKey("live");
    const first = await key.mint(null);
    const rotations = await Promise.all(Array.from({ length: 8 }, () => key.rotate(overlapHours)));
    const secrets = [first, ...rotations.map((rotation) => rotation?.secret ?? "")];
    expect(new Set(secrets).size).toBe(9);
    expect(await key.live(secrets)).toHaveLength(overlapHours === 0 ? 1 : 2);
  }
});
