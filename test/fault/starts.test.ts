import { chmod, mkdir, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../harness/wait.ts";
import { createSubject } from "./subject.ts";
import { createTree, freePort, newDataFolder, spawnMain, type Tree } from "./tree.ts";

let first: Tree;
let second: Tree;
const folders: string[] = [];
beforeAll(async () => {
  [first, second] = [await createTree(), await createTree()];
  await first.start();
  await second.start();
}, 240_000);
afterAll(async () => {
  await first?.close();
  await second?.close();
  for (const folder of folders) {
    await chmod(folder, 0o755);
    await rm(folder, { recursive: true, force: true });
  }
});

/** What a start with these settings says before it gives up with exit code 1: one line. */
async function refusal(settings: Record<string, string>): Promise<string> {
  const folder = await newDataFolder();
  folders.push(folder);
  const ports = { KAPSTONE_PORT: String(await freePort()), KAPSTONE_SMTP_PORT: String(await freePort()) };
  const started = spawnMain({ KAPSTONE_DATA_DIR: folder, ...ports, ...settings });
  const code = await started.ended;
  expect([code, started.output()]).toEqual([1, expect.any(String)]);
  // Steps that a person waits for are told too; the refusal is the one line that is none.
  const lines = started
    .output()
    .split("\n")
    .filter((line) => line !== "" && !/^Starting .* …$/.test(line));
  expect(lines).toHaveLength(1);
  return lines[0] as string;
}

test("two platforms on other ports and data folders run side by side, and neither knows the other's people and kaps", {
  timeout: 180_000,
}, async () => {
  const [one, other] = [await createSubject(first), await createSubject(second)];
  for (const [tree, subject] of [
    [first, one],
    [second, other],
  ] as const) {
    expect((await subject.kap.call({ path: `/row?key=${tree.port}` })).text).toBe(`v1 ${tree.port}`);
    expect(await tree.query("select id from kaps")).toEqual([{ id: subject.kap.id }]);
  }
  const stranger = { authorization: `Bearer ${one.kap.token}` };
  expect((await second.http.call({ host: second.host(`${one.kap.slug}.kaps`), path: "/kept", headers: stranger })).status).toBe(404);
  expect((await second.http.call({ host: second.host(`${other.kap.slug}.kaps`), path: "/kept", headers: stranger })).status).toBe(401);
  const session = { authorization: `Bearer ${one.org.session}` };
  expect((await second.http.call({ host: second.host("api"), path: "/v1/me", headers: session })).status).toBe(401);
});

test("a second start on the same data folder is refused, and does the first no harm", { timeout: 120_000 }, async () => {
  expect(await refusal({ KAPSTONE_DATA_DIR: first.dataDir })).toMatch(
    /^Another Kapstone \(process \d+\) uses the data folder \S+: stop it, or set KAPSTONE_DATA_DIR to another folder\.$/,
  );
  await until(async () => (await first.http.call({ host: first.host("api"), path: "/readyz" })).status === 200, { what: "readiness" });
});

test.each(["KAPSTONE_PORT", "KAPSTONE_SMTP_PORT", "KAPSTONE_INTERNAL_PORT"])(
  "a taken %s is refused by name",
  { timeout: 120_000 },
  async (variable) => {
    const taken = createServer().listen(0, "127.0.0.1");
    const port = await new Promise<number>((resolve) => taken.once("listening", () => resolve((taken.address() as { port: number }).port)));
    try {
      const line = await refusal({ [variable]: String(port) });
      expect(line).toBe(`Port ${port} is taken by another program: stop it, or set ${variable} to another port.`);
    } finally {
      taken.close();
    }
  },
);

test("a data folder that cannot be written is refused", { timeout: 60_000 }, async () => {
  // Root may write everywhere but where the system itself says no.
  let path = "/sys/kapstone-data";
  if (process.getuid?.() !== 0) {
    const closed = await newDataFolder();
    folders.push(closed);
    await mkdir(join(closed, "data"));
    await chmod(join(closed, "data"), 0o555);
    path = join(closed, "data");
  }
  expect(await refusal({ KAPSTONE_DATA_DIR: path })).toMatch(
    /^Cannot write to the data folder \S+ \(E[A-Z]+\): make it writable for this user, or set KAPSTONE_DATA_DIR to a folder that is\.$/,
  );
});

test("a data folder of a newer release is refused and left as it is", { timeout: 180_000 }, async () => {
  await second.query("insert into migrations (name) values ('9999_from_the_future')");
  await second.stop();
  const line = await refusal({ KAPSTONE_DATA_DIR: second.dataDir });
  expect(line).toContain("9999_from_the_future");
  expect(line).toMatch(/newer release .*start that release, or give this one another database or data folder/);
});
