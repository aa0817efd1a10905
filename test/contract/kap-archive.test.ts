import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { extract, type Header, pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Answer } from "../harness/http.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";

interface Entry {
  header: Partial<Header> & { name: string };
  bytes: Buffer;
}
interface Manifest {
  format: string;
  versions: { sequence: number; files: { path: string; size: number; sha256: string }[] }[];
  triggers: { file_path: string; cron: string | null }[];
  archive: { store_sql: { size: number; sha256: string } };
}
interface Imported {
  kap: { id: string; slug: string; audience: string; current_version_id: string };
  version: { id: string; sequence: number };
  bypass_token: string;
  secret_names: string[];
}

const program = (word: string) => `
import { db, store } from "kap";
import { word } from "./word.ts";
export default {
  async fetch() {
    const { rows } = await db.query("select id, note, amount::text as amount from entries order by id");
    const file = await store.get("a/ü file.bin");
    return Response.json({ word, said: ${JSON.stringify(word)}, rows, type: file.headers.get("content-type"), size: (await file.arrayBuffer()).byteLength });
  },
  async scheduled() {},
  async email() {},
};`;

let here: TestPlatform;
let there: TestPlatform;
let org: TestOrg;
let other: TestOrg;
let kap: TestKap;
let base: string;
let archive: Buffer;
let entries: Entry[];

const allBytes = Buffer.from(Array.from({ length: 70_000 }, (_, index) => index % 256));

async function query(sql: string, params: unknown[] = []) {
  const answer = await org.call({ method: "POST", path: `${base}/db/query`, body: { sql, params } });
  expect(answer.status, answer.text).toBe(200);
}
async function put(key: string, body: Buffer, type: string) {
  const path = `${base}/store/files/object?key=${encodeURIComponent(key)}`;
  expect((await org.call({ method: "PUT", path, body, headers: { "content-type": type } })).status).toBe(200);
}

async function unpack(tar: Buffer): Promise<Entry[]> {
  const found: Entry[] = [];
  const reader = extract();
  Readable.from([tar]).pipe(reader as unknown as NodeJS.WritableStream);
  for await (const entry of reader)
    found.push({ header: entry.header as Entry["header"], bytes: await buffer(entry as unknown as Readable) });
  return found;
}
async function repack(list: Entry[]): Promise<Buffer> {
  const tar = pack();
  const all = buffer(tar as unknown as Readable);
  for (const { header, bytes } of list) tar.entry({ ...header, size: bytes.length } as Header, bytes);
  tar.finalize();
  return all;
}
const send = (tar: Buffer, to: TestOrg = other): Promise<Answer> =>
  to.call({
    method: "POST",
    path: `/v1/orgs/${to.id}/kaps/import`,
    body: tar,
    headers: { "content-type": "application/x-tar" },
    timeoutMs: 60_000,
  });

beforeAll(async () => {
  here = await startTestPlatform();
  there = await startTestPlatform();
  [org, other] = await Promise.all([signUpOrg(here), signUpOrg(there)]);
  kap = await org.createKap({ "main.ts": program("one"), "word.ts": "export const word: string = 'ünïcode';", "note.txt": "a;b\n" });
  base = `/v1/orgs/${org.id}/kaps/${kap.id}`;
  const saved = await kap.save(program("two"));
  expect(saved.status).toBe(200);
  const current = saved.json<{ version: { id: string } }>().version.id;
  expect(
    (await org.call({ method: "POST", path: `${base}/versions/${kap.versionId}/restore`, body: { base_version_id: current } })).status,
  ).toBe(200);
  await query("create type mood as enum ('glad', 'sad;''')");
  await query(
    `create table entries (id int generated always as identity primary key, note text not null default 'x;y', amount numeric, feeling mood, raw bytea, "odd; name" jsonb)`,
  );
  await query("create function noted() returns trigger language plpgsql as $$ begin new.note := new.note || ';'; return new; end $$");
  await query(
    `insert into entries (note, amount, feeling, raw, "odd; name") values ($1, '12345678901234567890.5', 'sad;''', '\\xfffe', $2)`,
    ["it's; \\ $$ -- /* ü😀", { a: [1, null] }],
  );
  await query("insert into entries (note) select 'row ' || g from generate_series(1, 2000) g");
  await query("insert into entries (note) values (repeat('long ', 100000))");
  await query("create trigger noting before insert on entries for each row execute function noted()");
  await query("create index on entries (lower(note)) where amount is not null");
  await put("a/ü file.bin", allBytes, "image/x-odd; charset=none");
  await put("a", Buffer.alloc(0), "text/plain");
  await put("a/b/", Buffer.from("slash"), "text/html");
  await put(`long/${"k".repeat(900)}`, Buffer.from("long"), "text/css");
  await org.call({ method: "PUT", path: `${base}/secrets/API_KEY`, body: { value: "very secret value" } });
  for (const body of [
    { kind: "schedule", file_path: "main.ts", cron: "0 3 * * 1" },
    { kind: "schedule", file_path: "main.ts", interval_seconds: 1_800 },
    { kind: "inbox", file_path: "main.ts", auto_replies: true },
  ])
    expect((await org.call({ method: "POST", path: `${base}/triggers`, body })).status).toBe(201);
  const policy = { audience: "public", invited: [], base_revision: 1, confirm_public: true };
  expect((await org.call({ method: "PUT", path: `${base}/audience`, body: policy })).status).toBe(200);

  const exported = await org.call({ path: `${base}/export` });
  expect([exported.status, exported.headers["content-type"]]).toEqual([200, "application/x-tar"]);
  archive = exported.bytes;
  entries = await unpack(archive);
}, 120_000);
afterAll(() => Promise.all([here.close(), there.close()]));

test("the manifest is the same on both bases, links to the downloads, and holds names of secrets and no value", async () => {
  const answer = await org.call({ path: `${base}/export/manifest` });
  const manifest = answer.json<{
    format: string;
    kap: { id: string };
    versions: { sequence: number }[];
    secret_names: string[];
    store: { sql: string; files: string };
  }>();
  expect(manifest).toMatchObject({ format: "kap-export/1", kap: { id: kap.id }, secret_names: ["API_KEY"] });
  expect(manifest.versions.map(({ sequence }) => sequence)).toEqual([1, 2, 3]);
  for (const link of [manifest.store.sql, manifest.store.files]) {
    const url = new URL(link);
    expect((await org.call({ host: url.host, path: url.pathname })).status, link).toBe(200);
  }
  const short = (await org.call({ host: here.host("api"), path: `/v1/kaps/${kap.id}/export/manifest` })).json<Record<string, unknown>>();
  expect({ ...short, exported_at: 0 }).toEqual({ ...manifest, exported_at: 0 });
  expect(archive.includes("very secret value")).toBe(false);
});

test("the archive makes the same kap on another platform: program, versions, database, files, triggers", async () => {
  const answer = await send(archive);
  expect([answer.status, answer.status === 201 ? "" : answer.text]).toEqual([201, ""]);
  const made = answer.json<Imported>();
  expect(made).toMatchObject({ kap: { slug: kap.slug, audience: "members" }, version: { sequence: 3 }, secret_names: ["API_KEY"] });
  expect(made.kap.id).not.toBe(kap.id);

  const call = (platform: TestPlatform, slug: string, token: string) =>
    platform.http.call({ host: platform.host(`${slug}.kaps`), path: "/", headers: { authorization: `Bearer ${token}` } });
  const before = await call(here, kap.slug, kap.token);
  const after = await call(there, made.kap.slug, made.bypass_token);
  expect(before.status).toBe(200);
  expect(after.json()).toEqual(before.json());
  expect((await there.http.call({ host: there.host(`${made.kap.slug}.kaps`), path: "/" })).status).toBe(401);

  const again = await other.call({ path: `/v1/kaps/${made.kap.id}/export` });
  const back = await unpack(again.bytes);
  const contents = (list: Entry[]) =>
    list
      .filter(({ header }) => header.name !== "manifest.json")
      .map(({ header, bytes }) => [header.name, header.pax ?? null, bytes.toString("base64")]);
  expect(contents(back)).toEqual(contents(entries));

  const manifests = [entries, back].map(
    (list) => JSON.parse(list[0]!.bytes.toString()) as { versions: Record<string, unknown>[]; triggers: unknown },
  );
  const [first, second] = manifests.map(({ versions, triggers }) => ({
    triggers,
    versions: versions.map(({ sequence, main_file, files, packages, bundle_sha256 }) => ({
      sequence,
      main_file,
      files,
      packages,
      bundle_sha256,
    })),
  }));
  expect(second).toEqual(first);
  const versions = manifests[1]!.versions;
  expect(versions[2]!.restored_from).toBe(versions[0]!.id);

  const { events } = (await other.call({ path: `/v1/orgs/${other.id}/kaps/${made.kap.id}/history` })).json<{
    events: { kind: string; detail: unknown }[];
  }>();
  expect(events.map(({ kind }) => kind)).toEqual(["created", "db.imported"]);
  expect(events[1]!.detail).toMatchObject({ from: { id: kap.id, slug: kap.slug }, secret_names: ["API_KEY"] });

  const inserted = await other.call({
    method: "POST",
    path: `/v1/kaps/${made.kap.id}/db/query`,
    body: { sql: "insert into entries (note) values ('n') returning id, note" },
  });
  expect(inserted.json<{ rows: unknown[] }>().rows).toEqual([{ id: 2003, note: "n;" }]);
});

test("a second import of the same archive is another kap, under a slug of its own", async () => {
  const [one, two] = [(await send(archive)).json<Imported>(), (await send(archive)).json<Imported>()];
  expect(new Set([one.kap.slug, two.kap.slug, kap.slug]).size).toBe(3);
});

describe("a hostile or broken archive is 422 naming the cause, and leaves nothing behind", () => {
  const find = (name: string) => entries.find(({ header }) => header.name === name)!;
  const changed = (name: string, bytes: Buffer | string) =>
    entries.map((entry) => (entry.header.name === name ? { ...entry, bytes: Buffer.from(bytes) } : entry));
  const without = (name: string) => entries.filter(({ header }) => header.name !== name);
  const withManifest = (change: (manifest: Manifest) => void) => {
    const manifest = JSON.parse(find("manifest.json").bytes.toString()) as Manifest;
    change(manifest);
    return changed("manifest.json", JSON.stringify(manifest));
  };
  const withSql = (sql: string) => {
    const bytes = Buffer.from(sql);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    return withManifest((manifest) => (manifest.archive.store_sql = { size: bytes.length, sha256 })).map((entry) =>
      entry.header.name === "store.sql" ? { ...entry, bytes } : entry,
    );
  };
  const extra = (name: string, header: Partial<Header> = {}, text = "x"): Entry[] => [
    ...entries.slice(0, -1),
    { header: { name, ...header } as Entry["header"], bytes: Buffer.from(text) },
    entries.at(-1)!,
  ];

  const cases: [string, () => Entry[], RegExp][] = [
    ["an unknown format", () => withManifest((m) => (m.format = "kap-export/9")), /kap-export\/9.*not a format/],
    ["no manifest", () => without("manifest.json"), /manifest\.json: must be the archive's first file/],
    ["a manifest that is no JSON", () => changed("manifest.json", "{"), /manifest\.json: is not valid JSON/],
    ["a manifest that nests deeply", () => changed("manifest.json", `${"[".repeat(100_000)}`), /manifest\.json/],
    [
      "a version's path that leaves it",
      () => withManifest((m) => (m.versions[0]!.files[0]!.path = "../../etc/passwd")),
      /manifest\.json\.versions\.0/,
    ],
    ["versions out of order", () => withManifest((m) => m.versions.reverse()), /must be greater/],
    ["too many versions", () => withManifest((m) => (m.versions = Array(2_001).fill(m.versions[0]))), /versions/],
    [
      "a file of a version that was changed",
      () => changed("versions/1/main.ts", find("versions/1/main.ts").bytes.toString().replace("one", "eno")),
      /versions\/1\/main\.ts: has not the SHA-256/,
    ],
    ["a file of a version that is missing", () => without("versions/2/word.ts"), /versions\/2\/word\.ts: is in the manifest and missing/],
    ["a file that no version has", () => extra("versions/1/more.ts"), /versions\/1\/more\.ts: is not in the manifest/],
    ["a path that leaves the archive", () => extra("../../../tmp/evil"), /is not in the manifest/],
    ["an absolute path", () => extra("/etc/cron.d/evil"), /is not in the manifest/],
    ["a key that leaves the store", () => extra("files/../../x"), /must not hold \. or \.\. segments/],
    [
      "a symbolic link",
      () => extra("files/link", { type: "symlink", linkname: "/etc/passwd" }, ""),
      /symlink: an archive holds plain files only/,
    ],
    ["a device", () => extra("files/null", { type: "character-device" }, ""), /plain files only/],
    ["the same file twice", () => extra("files/a"), /files\/a: is there twice/],
    [
      "a stored file that was changed",
      () => changed("files/a/ü file.bin", Buffer.from(allBytes).fill(0, 5, 6)),
      /has not the SHA-256 that checksums\.json says/,
    ],
    ["a stored file that is missing", () => without("files/a/b/"), /files\/a\/b\/: is in checksums\.json and missing/],
    ["a stored file nobody knows", () => extra("files/new"), /files\/new: has not the SHA-256/],
    ["no database", () => without("store.sql"), /store\.sql: is missing/],
    ["no checksums", () => without("checksums.json"), /checksums\.json: is missing/],
    ["a database that was changed", () => changed("store.sql", "select 1;"), /store\.sql: has 9 bytes/],
    ["SQL that ends in a string", () => withSql("select 'a"), /ends inside a string/],
    ["SQL that is none", () => withSql("selec 1;"), /store\.sql: .*syntax error/],
    ["SQL that acts as another role", () => withSql("reset role;"), /store\.sql: SET and RESET are refused/],
    ["SQL with DO", () => withSql("do $$ begin perform 1; end $$;"), /store\.sql: DO is refused/],
    ["SQL with COPY", () => withSql("copy (select 1) to program 'id';"), /store\.sql: COPY is refused/],
    [
      "SQL on the platform's tables",
      () => withSql("select * from kapstone.accounts;"),
      /store\.sql: .*(?:permission denied|does not exist)/,
    ],
    [
      "SQL that sends another statement along",
      () => withSql(`insert into x values ('${"a".repeat(300_000)}') returning 1`.concat(";")),
      /store\.sql: .*does not exist/,
    ],
    ["a schedule that comes too often", () => withManifest((m) => (m.triggers[1]!.cron = "* * * * *")), /triggers\.1/],
    ["a trigger on a file that is not there", () => withManifest((m) => (m.triggers[1]!.file_path = "gone.ts")), /triggers\.1\.file_path/],
    ["no request trigger", () => withManifest((m) => m.triggers.shift()), /request trigger/],
    [
      "a program that cannot be built",
      () => {
        const bytes = Buffer.from("export default (");
        const sha256 = createHash("sha256").update(bytes).digest("hex");
        return withManifest((m) =>
          Object.assign(m.versions[1]!.files.find((file) => file.path === "main.ts")!, { size: bytes.length, sha256 }),
        ).map((entry) => (entry.header.name === "versions/2/main.ts" ? { ...entry, bytes } : entry));
      },
      /version 2: main\.ts:1/,
    ],
  ];

  const traces = async () => {
    const { rows } = await there.database.postgres.knex.raw<{ rows: { n: string }[] }>(
      `select (select count(*) from kaps) || ' ' || (select count(*) from pg_namespace where nspname like 'kap\\_0%')  || ' ' || (select count(*) from kap_blobs) as n`,
    );
    return rows[0]!.n;
  };

  test.each(cases)("%s", async (_what, make, cause) => {
    const before = await traces();
    const answer = await send(await repack(make()));
    expect([answer.status, answer.json<{ error: { message: string } }>().error.message]).toEqual([422, expect.stringMatching(cause)]);
    expect(await traces()).toBe(before);
  });

  test("a tar that was cut off, bytes that are no tar, and nothing at all", async () => {
    const before = await traces();
    for (const bytes of [
      archive.subarray(0, archive.length / 2),
      archive.subarray(0, 700),
      Buffer.from("x".repeat(2_000)),
      Buffer.alloc(0),
      Buffer.alloc(10_240),
    ]) {
      const answer = await send(bytes);
      expect([answer.status, bytes.length]).toEqual([422, bytes.length]);
    }
    expect(await traces()).toBe(before);
  });

  test("a header that says it is huge", async () => {
    const huge = Buffer.from(archive.subarray(0, 512));
    huge.write("77777777777\0", 124, "latin1");
    huge.write("x", 156, "latin1");
    huge.fill(" ", 148, 156);
    const sum = huge.reduce((total, byte) => total + byte, 0);
    huge.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
    const answer = await send(Buffer.concat([huge, Buffer.alloc(100_000)]));
    expect([answer.status, answer.text]).toEqual([422, expect.stringContaining("Header exceeds max size")]);
  });

  test("another content type is 415", async () => {
    expect(
      (
        await other.call({
          method: "POST",
          path: `/v1/orgs/${other.id}/kaps/import`,
          body: archive,
          headers: { "content-type": "application/zip" },
        })
      ).status,
    ).toBe(415);
  });
});
