import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../test/harness/wait.ts";
import { type ApiPeer, openApiPeer } from "./internal-api.peer.ts";
import { type Dialogue, openDialogue } from "./smtp-dialogue.ts";
import { testCertificate } from "./test-certificate.ts";

const mebibyte = 1024 * 1024;
let api: ApiPeer;
let child: ChildProcess;
let exited: Promise<unknown[]>;
let smtpPort: number;
let monitoring: string;

beforeEach(async () => {
  api = await openApiPeer("token");
  child = spawn(process.execPath, [join(import.meta.dirname, "main.ts")], {
    env: { KAPSTONE_SMTP_PORT: "0", KAPSTONE_MONITORING_PORT: "0", KAPSTONE_INTERNAL_URL: api.url, KAPSTONE_INGEST_TOKEN: "token" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout! });
  for await (const line of lines) {
    const entry = JSON.parse(line);
    expect(line).not.toContain('"token"');
    if (entry.msg !== "mail ingest is ready") continue;
    smtpPort = entry.smtp.port;
    monitoring = `http://127.0.0.1:${entry.monitoring.port}`;
    break;
  }
  child.stdout!.resume();
});
afterEach(async () => {
  child.kill("SIGKILL");
  await exited;
  await api.close();
});

async function inData(): Promise<Dialogue> {
  const dialogue = await openDialogue(smtpPort);
  await dialogue.begin(["counter@mail.localhost"]);
  expect(await dialogue.ask("DATA")).toMatch(/^354/);
  return dialogue;
}
async function metric(name: string): Promise<number> {
  const page = await (await fetch(`${monitoring}/metrics`)).text();
  return Number(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "m").exec(page)?.[1]);
}

test("it tells its health, and is ready only while the API is", async () => {
  const readiness = async () => {
    const answer = await fetch(`${monitoring}/readyz`);
    return { status: answer.status, body: (await answer.json()) as { ready: boolean; checks: { api: string; smtp: string } } };
  };
  /** A check has two seconds, which a machine may stand still for. */
  const readinessOf = (api: string) =>
    until(async () => {
      const found = await readiness();
      return found.body.checks.api.includes(api) && found;
    });
  expect((await fetch(`${monitoring}/healthz`)).status).toBe(200);
  expect(await readinessOf("ok")).toEqual({ status: 200, body: { ready: true, checks: { api: "ok", smtp: "ok" } } });
  await api.close();
  expect(await readinessOf("ECONNREFUSED")).toMatchObject({ status: 503, body: { ready: false } });
  expect(await metric("kapstone_mail_connections")).toBe(0);
});

test("SIGTERM lets a message under way end with 250, then the process ends by itself", async () => {
  const sending = await inData();
  await sending.send("Subject: hi\r\n\r\n");
  await until(() => api.begun === 1);
  child.kill("SIGTERM");
  expect(await sending.ask("hello\r\n.")).toMatch(/^250/);
  expect((await exited)[0]).toBe(0);
  expect(api.stored).toHaveLength(1);
});

test("SIGKILL in the middle of a message leaves nothing, and the sender has heard no 250", async () => {
  const sending = await inData();
  await sending.send(`Subject: hi\r\n\r\n${"x".repeat(200_000)}`);
  await until(() => api.begun === 1);
  child.kill("SIGKILL");
  expect(await sending.reply()).toBeNull();
  await until(() => api.broken === 1);
  expect(api.stored).toEqual([]);
});

test("ten senders of 16 MiB before an API that does not read are held back: less than 1 MiB of buffers each", async () => {
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  api.beforeBody = () => held;
  const senders = await Promise.all(Array.from({ length: 10 }, inData));
  const before = await metric("nodejs_external_memory_bytes");
  const chunk = Buffer.alloc(65_536, `${"x".repeat(998)}\r\n`);
  const message = Buffer.alloc(16 * mebibyte, "x".repeat(998).concat("\r\n"));
  message.write("A: b\r\n\r\n");
  message.write("\r\n", message.length - 2);
  const endings = senders.map(async (sender) => {
    for (let at = 0; at < message.length; at += chunk.length) await sender.send(message.subarray(at, at + chunk.length));
    return await sender.ask(".");
  });
  // However much the kernel's buffers take: at some moment nobody's bytes move any more, and none has been answered.
  let [last, looks] = ["", 0];
  await until(() => {
    const taken = senders.map((sender) => sender.socket.bytesWritten - sender.socket.writableLength);
    const isHeld = taken.join() === last && api.begun === 10 && Math.min(...taken) > 2 * mebibyte;
    looks = isHeld ? looks + 1 : 0;
    last = taken.join();
    return looks === 10;
  });
  // Buffers that were only passed on go with the next collections, which asking for the metrics brings about.
  await until(async () => (await metric("nodejs_external_memory_bytes")) - before < 10 * mebibyte);
  expect(api.stored).toEqual([]);
  letGo();
  for (const answer of await Promise.all(endings)) expect(answer).toMatch(/^250/);
  expect(api.stored.every((stored) => stored.content.length === message.length)).toBe(true);
  for (const sender of senders) sender.close();
}, 180_000);

test("a port that is taken is said in one line, with what to do", async () => {
  const second = spawn(process.execPath, [join(import.meta.dirname, "main.ts")], {
    env: {
      KAPSTONE_SMTP_PORT: String(smtpPort),
      KAPSTONE_MONITORING_PORT: "0",
      KAPSTONE_INGEST_TOKEN: "token",
      KAPSTONE_LOG_LEVEL: "silent",
    },
    stdio: ["ignore", "inherit", "pipe"],
  });
  const [said, [code]] = await Promise.all([text(second.stderr!), once(second, "exit")]);
  expect(code).toBe(1);
  expect(said).toMatch(/^Mail ingest did not start: .*EADDRINUSE.*KAPSTONE_SMTP_PORT.*\n$/);
});

test("a certificate that is replaced as a cluster replaces a Secret's files is read again without being told", async () => {
  const folder = await mkdtemp(join(tmpdir(), "certificate-"));
  const put = async (version: string): Promise<void> => {
    await mkdir(join(folder, version));
    await writeFile(join(folder, version, "tls.crt"), testCertificate.cert);
    await writeFile(join(folder, version, "tls.key"), testCertificate.key);
    await symlink(version, join(folder, "..new"));
    await rename(join(folder, "..new"), join(folder, "..data"));
  };
  await put("one");
  for (const name of ["tls.crt", "tls.key"]) await symlink(join("..data", name), join(folder, name));
  const second = spawn(process.execPath, [join(import.meta.dirname, "main.ts")], {
    env: {
      KAPSTONE_SMTP_PORT: "0",
      KAPSTONE_MONITORING_PORT: "0",
      KAPSTONE_INGEST_TOKEN: "token",
      KAPSTONE_SMTP_TLS_CERT_FILE: join(folder, "tls.crt"),
      KAPSTONE_SMTP_TLS_KEY_FILE: join(folder, "tls.key"),
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(second, "exit");
  let isRead = false;
  createInterface({ input: second.stdout! }).on("line", (line) => {
    isRead ||= JSON.parse(line).msg === "the certificate was read again";
  });
  try {
    let version = 0;
    await until(
      async () => {
        await put(`next-${++version}`); // again and again: the first may come before the file is looked at for the first time
        await delay(1_000);
        return isRead;
      },
      { timeoutMs: 25_000 },
    );
  } finally {
    second.kill("SIGKILL");
    await ended;
    await rm(folder, { recursive: true });
  }
});
