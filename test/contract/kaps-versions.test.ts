import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { diffFiles } from "../../api/services/kaps/diff.ts";
import { saveFiles } from "../../api/services/kaps/save.ts";
import { newId } from "../../platform/ids.ts";
import type { ServiceApp } from "./auth-app.ts";
import { type Author, author, type Created, codeOf, filesOf, program, startKapsApp, type VersionBody } from "./kaps-app.ts";

let app: ServiceApp;
let me: Author;
const versionOf = (answer: { json<T>(): T }): VersionBody => answer.json<{ version: VersionBody }>().version;

beforeAll(async () => {
  app = await startKapsApp();
  me = await author(app);
});
afterAll(() => app.close());

test("a save replaces the whole file set, keeps the main file unless told, and moves the request trigger with it", async () => {
  const { kap, version } = await me.create({ files: filesOf({ "main.ts": program, "old.txt": "old" }) });
  const second = versionOf(await me.save(kap.id, version.id, { "main.ts": program, "other.ts": program, "new.txt": "new" }));
  expect(second).toMatchObject({ sequence: 2, main_file: "main.ts", restored_from: null });
  expect(second.files.map((file) => file.path)).toEqual(["main.ts", "new.txt", "other.ts"]);
  const third = versionOf(await me.save(kap.id, second.id, { "other.ts": program }, { main_file: "other.ts" }));
  expect(third.main_file).toBe("other.ts");
  const read = (await me.call("GET", `/kaps/${kap.id}`)).json<{ triggers: object[]; files: object[]; version: VersionBody }>();
  expect(read.triggers).toMatchObject([{ kind: "request", file_path: "other.ts" }]);
  expect(read.version.id).toBe(third.id);
  expect(read.files).toMatchObject([{ path: "other.ts", content: program }]);
  const gone = await me.save(kap.id, third.id, { "main.ts": program });
  expect(gone.status).toBe(422); // the main file that is kept is not among the files
});

test("a stale base is 409 VERSION_CONFLICT naming the current version, whether it is old or unknown", async () => {
  const { kap, version } = await me.create();
  const second = versionOf(await me.save(kap.id, version.id, { "main.ts": `${program}//2` }));
  for (const base of [version.id, newId()]) {
    const answer = await me.save(kap.id, base, { "main.ts": program });
    expect(codeOf(answer)).toBe("409 VERSION_CONFLICT");
    expect(answer.json<{ error: { details: object } }>().error.details).toMatchObject({ current_version_id: second.id });
  }
  expect(codeOf(await me.save(kap.id, "not-an-id", { "main.ts": program }))).toBe("422 VALIDATION_FAILED");
});

test("type errors come back as diagnostics; with strict=true they refuse, and nothing changes", async () => {
  const { kap, version } = await me.create();
  const wrong = { "main.ts": "const n: number = 'text';\nexport default () => new Response(String(n));" };
  const refused = await me.save(kap.id, version.id, wrong, {}, "?strict=true");
  expect(codeOf(refused)).toBe("422 BUILD_FAILED");
  expect(refused.json<{ error: { details: object[] } }>().error.details[0]).toMatchObject({ file: "main.ts", line: 1, column: 7 });
  const { versions } = (await me.call("GET", `/kaps/${kap.id}/versions`)).json<{ versions: object[] }>();
  expect(versions.length).toBe(1);
  const saved = await me.save(kap.id, version.id, wrong);
  expect(saved.status).toBe(200);
  const body = saved.json<{ diagnostics: object[]; version: VersionBody }>();
  expect(body.diagnostics).toMatchObject([{ file: "main.ts", line: 1, column: 7, severity: "error", message: expect.any(String) }]);
  const read = (await me.call("GET", `/kaps/${kap.id}/versions/${body.version.id}`)).json<{ diagnostics: object[] }>();
  expect(read.diagnostics).toEqual(body.diagnostics);
  expect(codeOf(await me.save(kap.id, body.version.id, wrong, {}, "?strict=perhaps"))).toBe("422 VALIDATION_FAILED");
  const first = { name: "Strict", main_file: "main.ts", files: filesOf(wrong) };
  expect(codeOf(await me.call("POST", "/kaps?strict=true", first))).toBe("422 BUILD_FAILED");
  expect((await me.call("POST", "/kaps", first)).json<Created>().diagnostics).toEqual(body.diagnostics);
});

test("a save that does not compile changes nothing", async () => {
  const { kap, version } = await me.create();
  for (const source of [
    "export default (",
    "import fs from 'node:fs'; export default () => fs;",
    "import x from './missing.ts'; export default x;",
  ]) {
    const answer = await me.save(kap.id, version.id, { "main.ts": source });
    expect(codeOf(answer)).toBe("422 BUILD_FAILED");
  }
  const read = (await me.call("GET", `/kaps/${kap.id}`)).json<{ kap: { current_version_id: string } }>();
  expect(read.kap.current_version_id).toBe(version.id);
});

test("a save that drops a trigger's file is 422 naming the trigger", async () => {
  const { kap, version } = await me.create({ files: filesOf({ "main.ts": program, "tick.ts": program }) });
  const trigger = newId();
  await app.deps
    .db("kap_triggers")
    .insert({ id: trigger, kap_id: kap.id, kind: "schedule", file_path: "tick.ts", cron: "0 * * * *", created_by: JSON.stringify({}) });
  const dropped = await me.save(kap.id, version.id, { "main.ts": program });
  expect(codeOf(dropped)).toBe("422 VALIDATION_FAILED");
  expect(dropped.text).toContain(trigger);
  expect((await me.save(kap.id, version.id, { "main.ts": program, "tick.ts": `${program}//` })).status).toBe(200);
});

test("a restore is a new version with restored_from; earlier ones stay as they were", async () => {
  const { kap, version } = await me.create({ files: filesOf({ "main.ts": program, "a.txt": "one" }) });
  const second = versionOf(await me.save(kap.id, version.id, { "index.ts": program }, { main_file: "index.ts" }));
  expect(codeOf(await me.call("POST", `/kaps/${kap.id}/versions/${version.id}/restore`, { base_version_id: version.id }))).toBe(
    "409 VERSION_CONFLICT",
  );
  const answer = await me.call("POST", `/kaps/${kap.id}/versions/${version.id}/restore`, { base_version_id: second.id });
  expect(answer.status).toBe(200);
  const third = versionOf(answer);
  expect(third).toMatchObject({
    sequence: 3,
    restored_from: version.id,
    main_file: "main.ts",
    files: version.files,
    bundle_sha256: version.bundle_sha256,
  });
  const list = (await me.call("GET", `/kaps/${kap.id}/versions`)).json<{ versions: VersionBody[] }>().versions;
  expect(list.map((entry) => entry.sequence)).toEqual([3, 2, 1]);
  const read = versionOf(await me.call("GET", `/kaps/${kap.id}/versions/${second.id}`));
  expect(read.files).toMatchObject([{ path: "index.ts", content: program }]);
  expect((await me.call("POST", `/kaps/${kap.id}/versions/${newId()}/restore`, { base_version_id: third.id })).status).toBe(404);
  expect((await me.call("GET", `/kaps/${kap.id}/versions/not-an-id`)).status).toBe(404);
});

test("a version of another kap is not found through this one", async () => {
  const mine = await me.create();
  const another = await me.create();
  expect((await me.call("GET", `/kaps/${mine.kap.id}/versions/${another.version.id}`)).status).toBe(404);
  expect((await me.call("GET", `/kaps/${mine.kap.id}/diff?from=${mine.version.id}&to=${another.version.id}`)).status).toBe(404);
});

test("a diff tells added, removed and modified files with whole texts", async () => {
  const { kap, version } = await me.create({
    files: filesOf({ "main.ts": program, "same.txt": "same", "gone.txt": "gone", "ünïcode.txt": "a" }),
  });
  const second = versionOf(
    await me.save(kap.id, version.id, { "start.ts": program, "same.txt": "same", "ünïcode.txt": "b\n" }, { main_file: "start.ts" }),
  );
  const answer = await me.call("GET", `/kaps/${kap.id}/diff?from=${version.id}&to=${second.id}`);
  expect(answer.json()).toEqual({
    from: version.id,
    to: second.id,
    main_file: { before: "main.ts", after: "start.ts" },
    files: [
      { path: "gone.txt", kind: "removed", before: "gone", after: null },
      { path: "main.ts", kind: "removed", before: program, after: null },
      { path: "start.ts", kind: "added", before: null, after: program },
      { path: "ünïcode.txt", kind: "modified", before: "a", after: "b\n" },
    ],
  });
  expect(codeOf(await me.call("GET", `/kaps/${kap.id}/diff?from=${version.id}`))).toBe("422 VALIDATION_FAILED");
});

test("applying a diff to the older file set gives the newer one", () => {
  const fileSet = fc.dictionary(fc.constantFrom("a", "b", "c", "d"), fc.string(), { maxKeys: 4 });
  fc.assert(
    fc.property(fileSet, fileSet, (before, after) => {
      const result = new Map(Object.entries(before));
      for (const change of diffFiles(filesOf(before), filesOf(after))) {
        expect(result.get(change.path) ?? null).toBe(change.before);
        if (change.after === null) result.delete(change.path);
        else result.set(change.path, change.after);
      }
      expect(Object.fromEntries(result)).toEqual({ ...after });
    }),
  );
});

test("of 200 saves on one base at once one wins, 199 hear 409, and the history has no gap", async () => {
  const { kap, version } = await me.create();
  const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => me.save(kap.id, version.id, { "main.ts": `${program}// ${n}` })));
  const won = answers.filter((answer) => answer.status === 200);
  expect(won.length).toBe(1);
  for (const answer of answers) if (answer.status !== 200) expect(codeOf(answer)).toBe("409 VERSION_CONFLICT");
  const { versions } = (await me.call("GET", `/kaps/${kap.id}/versions`)).json<{ versions: VersionBody[] }>();
  expect(versions.map((entry) => entry.sequence)).toEqual([2, 1]);
  const { events } = (await me.call("GET", `/kaps/${kap.id}/history`)).json<{
    events: { kind: string; detail: { sequence?: number } }[];
  }>();
  expect(events.map((event) => [event.kind, event.detail.sequence])).toEqual([
    ["created", undefined],
    ["saved", 2],
  ]);
}, 120_000);

test("saves from two replicas are decided by PostgreSQL, not by the process", async () => {
  const { kap, version } = await me.create();
  const row = await app.deps.db("kaps").where({ id: kap.id }).first();
  const caller = {
    org: { id: me.org.orgId },
    member: { id: me.org.memberId, name: "Olga Owner" },
    kind: "session",
    credentialId: newId(),
    credentialName: "",
    address: "127.0.0.1",
    requestId: "r",
  } as never;
  // The other replica's save commits while this one builds.
  const slow: typeof app.deps = {
    ...app.deps,
    builder: {
      ...app.deps.builder,
      async build(input, signal) {
        const result = await app.deps.builder.build(input, signal);
        expect((await me.call("PATCH", `/kaps/${kap.id}`, { name: "elsewhere" })).status).toBe(200);
        await app.deps.db("kaps").where({ id: kap.id }).update({ current_version_id: newId() });
        return result;
      },
    },
  };
  const save = { base: version.id, mainFile: null, files: filesOf({ "main.ts": program }), strict: false };
  await expect(saveFiles(slow, caller, "replica", row, save, AbortSignal.timeout(20_000))).rejects.toMatchObject({
    code: "VERSION_CONFLICT",
  });
  await app.deps.db("kaps").where({ id: kap.id }).update({ current_version_id: version.id });
  expect((await app.deps.db("kap_versions").where({ kap_id: kap.id })).length).toBe(1);
});
