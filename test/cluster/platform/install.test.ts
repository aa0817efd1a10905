import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { probePort } from "../../../local/free-port.ts";
import { signUpOrg, type TestKap, type TestOrg } from "../../harness/org.ts";
import { until } from "../../harness/wait.ts";
import { domain, helmMs, openRelease, releaseName, runHelm } from "./release.ts";
import { listBucket } from "./stores.ts";

const release = await openRelease();
const { kubectl } = release;
afterAll(() => release.close());
const waitMs = { timeoutMs: 90_000 };

const program = (version: number): string => `
import { db, store } from "kap";
export default {
  async fetch(request) {
    await db.query("create table if not exists seen (what text, at timestamptz not null default now())");
    await db.query("insert into seen (what) values ($1)", [new URL(request.url).pathname]);
    await store.put("notes/last.txt", "the bytes of version ${version}");
    return new Response("version ${version}");
  },
  async scheduled() {
    await db.query("insert into seen (what) values ('schedule')");
  },
  async email(message) {
    await db.query("insert into seen (what) values ($1)", [message.subject]);
  },
};`;

const org: TestOrg = await signUpOrg(release);
const kap: TestKap = await org.createKap(program(1));
const path = `/v1/orgs/${org.id}/kaps/${kap.id}`;
const change = async (method: string, to: string, body?: object): Promise<Record<string, unknown>> => {
  const answer = await org.call({ method, path: to, ...(body && { body }) });
  if (answer.status >= 300) throw new Error(`${method} ${to} answered ${answer.status}: ${answer.text}`);
  return answer.text === "" ? {} : answer.json();
};
const seen = async (): Promise<string[]> => {
  const [row] = await release.query<{ schema_name: string }>(`select schema_name from kaps where id = '${kap.id}'`);
  return (await release.query<{ what: string }>(`select what from ${row?.schema_name}.seen order by at`)).map(({ what }) => what);
};
/** Waits for a condition of the kap as `kubectl wait` does. */
const waitFor = (condition: string): Promise<string> =>
  until(() => kubectl("wait", `--for=${condition}`, `kap/${kap.slug}`, "--timeout=15s"), waitMs);

test(
  "helm test succeeds",
  async () => {
    expect(await runHelm("test", releaseName, "--namespace", release.namespace, "--timeout=5m")).toMatch(/Phase:\s+Succeeded/);
  },
  helmMs,
);

test("the notes work as they are printed: sign up, create a kap, call it", async () => {
  const notes = await runHelm("get", "notes", releaseName, "--namespace", release.namespace);
  const commands = notes
    .split("\n")
    .filter((line) => /^ {2}(?:kubectl .*(?:rollout|port-forward|get kaps)|until|TOKEN=|KAP=|curl)/.test(line));
  expect(commands).toHaveLength(7);
  // What may be taken already where this is repeated: the port here, and the names there.
  const { port } = await probePort("127.0.0.1", 0);
  const [, mark = ""] = /"org_slug":"org-([a-z0-9]+)"/.exec(notes) ?? [];
  const script = commands.join("\n").replaceAll("8080", String(port)).replaceAll(mark, randomBytes(4).toString("hex"));
  const shell = spawn("sh", ["-eu"], { stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  let errors = "";
  shell.stdout.on("data", (chunk) => {
    said += chunk;
  });
  shell.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  const ended = new Promise<number | null>((resolve) => shell.once("close", resolve));
  shell.stdin.end(`trap 'kill $!' EXIT\n${script}\n`);
  expect([await ended, errors]).toEqual([0, ""]);
  expect(said).toContain('{"visits":1}');
  expect(said).toMatch(/NAME +ORG +VERSION +PHASE +REPLICAS +ADDRESS +AGE$/m);
}, 300_000);

test("a kap answers through the Service, its rows are in its schema and its files in its bucket", async () => {
  const answer = await kap.call({ path: "/first" });
  expect([answer.status, answer.text]).toEqual([200, "version 1"]);
  expect(await seen()).toEqual(["/first"]);
  const [row] = await release.query<{ bucket: string }>(`select bucket from kaps where id = '${kap.id}'`);
  const objects = await listBucket(release, row?.bucket ?? "");
  expect(objects.filter(({ text }) => text === "the bytes of version 1")).toHaveLength(1);
});

test("kubectl shows the kap, waits for it and tells its events", async () => {
  await waitFor("condition=Ready");
  await waitFor("jsonpath={.status.phase}=Running");
  const [header, line] = (await kubectl("get", "kap", kap.slug)).trim().split("\n");
  expect(header?.split(/\s+/)).toEqual(["NAME", "ORG", "VERSION", "PHASE", "REPLICAS", "ADDRESS", "AGE"]);
  expect(line?.split(/\s+/).slice(0, 6)).toEqual([kap.slug, org.id, "1", "Running", "1", `http://${kap.slug}.kaps.${domain}`]);
  const [pod, ...more] = await release.pods("runtime", `kapstone.dev/kap=${kap.slug}`);
  expect([more.length, pod?.metadata.ownerReferences?.[0]?.name]).toEqual([0, kap.slug]);
  await until(async () => /Normal +Adopted/.test(await kubectl("describe", "kap", kap.slug)), waitMs);
});

test("mail through the ingest Service becomes a run of the kap", async () => {
  await change("POST", `${path}/triggers`, { kind: "inbox", file_path: "main.ts" });
  const data = `From: someone@example.org\nTo: ${kap.slug}@mail.${domain}\nSubject: by mail\nMessage-ID: <1@example.org>\n\nHello.\n`;
  const sent = { host: `${releaseName}-mail`, port: 25, from: "someone@example.org", to: `${kap.slug}@mail.${domain}`, data };
  const replies = await until(async () => {
    const said = await release.client.mail(sent);
    if (!said.some((reply) => /^250 .*/.test(reply)) || said.some((reply) => /^4/.test(reply))) throw new Error(said.join("; "));
    return said;
  }, waitMs);
  expect(replies.filter((reply) => /^5/.test(reply))).toEqual([]);
  await until(async () => (await seen()).includes("by mail"), waitMs);
  const succeeded = `select 1 from runs where kap_id = '${kap.id}' and trigger_kind = 'inbox' and status = 'succeeded'`;
  await until(async () => (await release.query(succeeded)).length === 1, waitMs);
});

test("a schedule has a CronJob, whose job makes the run that is due, once, and without schedules there is none", async () => {
  // Half a day from now, so that it does not come due by itself.
  const last = new Date(Date.now() - 12 * 3_600_000);
  last.setUTCSeconds(0, 0);
  const cron = `${last.getUTCMinutes()} ${last.getUTCHours()} * * *`;
  const made = (await change("POST", `${path}/triggers`, { kind: "schedule", file_path: "main.ts", cron })) as {
    trigger: { id: string };
  };
  const cronJob = await until(async () => {
    const jobs = (await kubectl("get", "cronjobs", "-o", "json").then(JSON.parse)) as {
      items: { metadata: { name: string }; spec: { schedule: string } }[];
    };
    return jobs.items.find(({ spec }) => spec.schedule === cron)?.metadata.name;
  }, waitMs);
  // Its last time, as if nobody had looked since.
  await release.execute(`update kap_triggers set next_run_at = '${last.toISOString()}' where id = '${made.trigger.id}'`);
  for (const job of [`${kap.slug}-fire-1`, `${kap.slug}-fire-2`]) {
    await kubectl("create", "job", job, `--from=cronjob/${cronJob}`);
    await until(() => kubectl("wait", "--for=condition=Complete", `job/${job}`, "--timeout=15s"), waitMs);
  }
  await until(async () => (await seen()).includes("schedule"), waitMs);
  expect((await seen()).filter((what) => what === "schedule")).toHaveLength(1);
  await change("DELETE", `${path}/triggers/${made.trigger.id}`);
  await until(async () => !(await kubectl("get", "cronjobs", "-o", "name")).includes(cronJob), waitMs);
});

test("another version is live when the save is answered, in the runtime that serves already", async () => {
  const before = await release.pods("runtime", `kapstone.dev/kap=${kap.slug}`);
  expect((await kap.save(program(2))).status).toBeLessThan(300);
  expect((await kap.call()).text).toBe("version 2");
  await waitFor("jsonpath={.spec.version}=2");
  const after = await release.pods("runtime", `kapstone.dev/kap=${kap.slug}`);
  expect(after.map(({ metadata }) => metadata.uid)).toEqual(before.map(({ metadata }) => metadata.uid));
});

test("the resource of a live kap that is deleted comes back, and its calls go on", async () => {
  const uid = await kubectl("get", "kap", kap.slug, "-o", "jsonpath={.metadata.uid}");
  await kubectl("delete", "kap", kap.slug, "--wait=false");
  const statuses = new Set<number>();
  await until(async () => {
    statuses.add((await kap.call()).status);
    const now = await kubectl("get", "kap", kap.slug, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}");
    return now !== "" && now !== uid;
  }, waitMs);
  expect([...statuses]).toEqual([200]);
  await waitFor("condition=Ready");
  expect((await kap.call()).text).toBe("version 2");
});

test("a disabled kap refuses and says so in the cluster; enabled it answers", async () => {
  await change("POST", `${path}/disable`, { reason: "a test" });
  expect((await kap.call()).status).toBe(503);
  await waitFor("jsonpath={.status.phase}=Disabled");
  await waitFor("condition=Ready=false");
  await until(async () => (await release.pods("runtime", `kapstone.dev/kap=${kap.slug}`)).length === 0, waitMs);
  await change("POST", `${path}/enable`);
  expect((await kap.call()).text).toBe("version 2");
  await waitFor("condition=Ready");
});

test("a deleted kap is not there, and recovered it has all its rows", async () => {
  const rows = await seen();
  await change("DELETE", path);
  expect((await kap.call()).status).toBe(410);
  await waitFor("jsonpath={.status.phase}=Deleted");
  await change("POST", `${path}/recover`);
  const answer = await until(async () => {
    const said = await kap.call({ path: "/recovered" });
    return said.status === 200 && said;
  }, waitMs);
  expect(answer.text).toBe("version 2");
  expect(await seen()).toEqual([...rows, "/recovered"]);
});
