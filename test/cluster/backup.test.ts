import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import {
  CreateBucketCommand,
  GetObjectCommand,
  ListBucketsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type HttpClient, openHttpClient } from "../harness/http.ts";
import { signUpOrg } from "../harness/org.ts";
import { until } from "../harness/wait.ts";
import { chartFolder, helm } from "./chart.ts";
import { images } from "./images.ts";
import { kubectl } from "./namespace.ts";

const mark = randomBytes(4).toString("hex");
const [old, fresh] = [`k-backup-${mark}`, `k-restore-${mark}`] as const;
const made = ["keys", "fire", "test", "postgres", "s3"].map((name) => `kapstone-${name}`);
const asleep = "--set=api.replicas=0,operator.replicas=0,mailIngest.replicas=0";
const patienceMs = 240_000;

const program = `import { db, store } from "kap";
export default async () => {
  await db.query("create table if not exists visits (at timestamptz not null default now())");
  await db.query("insert into visits default values");
  const { rows } = await db.query("select count(*)::int as count from visits");
  const before = await store.get("first");
  if (before === null) await store.put("first", "kept");
  return Response.json({ visits: rows[0].count, file: before === null ? null : await before.text() });
};`;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "backup-"));
});
afterAll(async () => {
  for (const namespace of [old, fresh]) {
    await helm("uninstall", "kapstone", "-n", namespace, "--ignore-not-found");
    await kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false");
  }
  await rm(folder, { recursive: true, force: true });
}, 700_000);

function install(namespace: string, ...args: string[]): Promise<string> {
  const set = `--set=images.registry=${images.registry},images.tag=${images.tag},images.pullPolicy=Always`;
  const values = join(chartFolder, "values-dev.yaml");
  return helm("upgrade", "--install", "kapstone", chartFolder, "-n", namespace, "--create-namespace", "-f", values, set, ...args);
}

/** Runs a program beside the bundled server, as its superuser, and answers what it writes. */
async function beside(namespace: string, command: string, input?: Buffer): Promise<Buffer> {
  const args = ["-n", namespace, "exec", ...(input ? ["-i"] : []), "kapstone-postgres-0", "--", "sh", "-c"];
  const running = promisify(execFile)("kubectl", [...args, `export PGPASSWORD=$POSTGRES_PASSWORD; ${command}`], {
    encoding: "buffer",
    maxBuffer: 256 * 1_048_576,
    timeout: 120_000,
  });
  running.child.stdin?.end(input);
  return (await running).stdout;
}

/** A way to a Service from here, on a port of its own. */
async function forward(namespace: string, service: string, port: number): Promise<{ origin: string; close(): void }> {
  const child: ChildProcess = spawn("kubectl", ["-n", namespace, "port-forward", `service/${service}`, `:${port}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface(child.stdout as NodeJS.ReadableStream)) {
    const found = /127\.0\.0\.1:(\d+)/.exec(line)?.[1];
    if (found) return { origin: `http://127.0.0.1:${found}`, close: () => child.kill() };
  }
  throw new Error(`there is no way to ${service}: kubectl port-forward ended`);
}

/** Waits until all of a workload is Ready: a way to a pod that does not listen yet ends with the first that goes it. */
async function rolledOut(namespace: string, workload: string): Promise<void> {
  await until(() => kubectl("-n", namespace, "rollout", "status", workload, "--timeout=60s"), { timeoutMs: patienceMs, what: workload });
}

/** The API of a namespace, from here. */
async function reach(namespace: string): Promise<HttpClient> {
  await rolledOut(namespace, "deployment/kapstone-api");
  const way = await until(() => forward(namespace, "kapstone-api", 80), { timeoutMs: patienceMs, what: "a way to the API" });
  const http = openHttpClient(way.origin);
  await until(async () => (await http.call({ host: "api.localhost", path: "/readyz" })).status === 200, {
    timeoutMs: patienceMs,
    what: "the API",
  });
  return {
    call: http.call,
    async close() {
      await http.close();
      way.close();
    },
  };
}

async function bucketsOf(namespace: string): Promise<{ s3: S3Client; close(): void }> {
  const way = await forward(namespace, "kapstone-s3", 7070);
  const { data } = JSON.parse(await kubectl("-n", namespace, "get", "secret", "kapstone-s3", "-o", "json")) as {
    data: Record<string, string>;
  };
  const plain = (name: string): string => Buffer.from(data[name] ?? "", "base64").toString();
  const credentials = { accessKeyId: plain("KAPSTONE_S3_ACCESS_KEY_ID"), secretAccessKey: plain("KAPSTONE_S3_SECRET_ACCESS_KEY") };
  const s3 = new S3Client({
    endpoint: way.origin,
    region: "us-east-1",
    forcePathStyle: true,
    credentials,
    requestChecksumCalculation: "WHEN_REQUIRED",
  });
  return { s3, close: way.close };
}

/** What any program that copies between S3 servers does. */
async function copyBuckets(from: S3Client, to: S3Client): Promise<number> {
  let count = 0;
  for (const { Name: Bucket } of (await from.send(new ListBucketsCommand({}))).Buckets ?? []) {
    await to.send(new CreateBucketCommand({ Bucket }));
    let after: string | undefined;
    do {
      const page = await from.send(new ListObjectsV2Command({ Bucket, ContinuationToken: after }));
      for (const { Key } of page.Contents ?? []) {
        const { Body, ContentType, Metadata = {} } = await from.send(new GetObjectCommand({ Bucket, Key }));
        const bytes = (await Body?.transformToByteArray()) ?? new Uint8Array();
        await to.send(new PutObjectCommand({ Bucket, Key, Body: bytes, Metadata, ...(ContentType !== undefined && { ContentType }) }));
        count++;
      }
      after = page.NextContinuationToken;
    } while (after !== undefined);
  }
  return count;
}

test("what docs/operations.md backs up is a platform again in an empty namespace: rows, files, tokens and accounts", async () => {
  // A platform in use.
  await install(old);
  const before = await reach(old);
  const host = (name: string): string => `${name}.localhost`;
  const org = await signUpOrg({ http: before, host });
  const kap = await org.createKap(program);
  const call = async (http: HttpClient): Promise<{ visits: number; file: string | null }> => {
    const answer = await http.call({ host: `${kap.slug}.kaps.localhost`, path: "/", headers: { authorization: `Bearer ${kap.token}` } });
    if (answer.status !== 200) throw new Error(`the kap answered ${answer.status}: ${answer.text}`);
    return answer.json();
  };
  await until(() => call(before), { timeoutMs: patienceMs, what: "the kap's first answer" });
  const last = await call(before);
  expect(last.file).toBe("kept");

  // Backup: keys, roles, database, buckets.
  const { items } = JSON.parse(await kubectl("-n", old, "get", "secret", ...made, "-o", "json")) as {
    items: { metadata: { name: string }; data: object }[];
  };
  const roles = await beside(old, "pg_dumpall -h 127.0.0.1 -U postgres --roles-only");
  const dump = await beside(old, "pg_dump -h 127.0.0.1 -U postgres -Fc kapstone");
  const [source, target] = [await bucketsOf(old), fresh] as const;

  // Restore into an empty namespace, before anything runs on the database.
  await kubectl("create", "namespace", target);
  const labels = { "app.kubernetes.io/managed-by": "Helm" };
  const annotations = { "meta.helm.sh/release-name": "kapstone", "meta.helm.sh/release-namespace": target };
  const list = items.map(({ metadata, data }) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: metadata.name, labels, annotations },
    data,
  }));
  await writeFile(join(folder, "keys.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: list }));
  await kubectl("-n", target, "apply", "-f", join(folder, "keys.json"));
  await install(target, asleep);
  for (const part of ["postgres", "s3"]) await rolledOut(target, `statefulset/kapstone-${part}`);
  await beside(target, "psql -h 127.0.0.1 -U postgres -d postgres -q", roles);
  await beside(target, "pg_restore -h 127.0.0.1 -U postgres -d postgres --create --exit-on-error", dump);
  const destination = await bucketsOf(target);
  expect(await copyBuckets(source.s3, destination.s3)).toBeGreaterThan(0);
  for (const each of [source, destination]) each.close();
  await install(target);

  // It goes on where it was.
  const after = await reach(target);
  const answer = await until(() => call(after), { timeoutMs: patienceMs, what: "the restored kap's answer" });
  expect(answer).toEqual({ visits: last.visits + 1, file: "kept" });
  const login = { email: `owner@${org.slug}.example`, password: "correct horse battery staple", org_slug: org.slug };
  expect((await after.call({ host: "api.localhost", method: "POST", path: "/v1/auth/login", body: login })).status).toBe(200);
  // Its resource is made by a comparison of its own, a moment after the API's start.
  await until(() => kubectl("-n", target, "wait", "--for=condition=Ready", `kap/${kap.slug}`, "--timeout=60s"), { timeoutMs: patienceMs });
  await before.close();
  await after.close();
}, 900_000);
