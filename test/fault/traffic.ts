import { setTimeout as delay } from "node:timers/promises";
import { createTransport } from "nodemailer";
import { Pool } from "undici";
import type { Answer } from "../harness/http.ts";
import type { CallRecord, Ledger, SaveRecord } from "./ledger.ts";
import { program, type Subject } from "./subject.ts";
import type { Tree } from "./tree.ts";

/** Past this an answer counts as a hang: a call may take 30 s of wall time, and 10 s to find a runtime. */
const hangMs = 50_000;
/** What a well-mannered client leaves between a refusal and its next try. */
const pauseMs = 40;

export interface Traffic {
  /** Lets what is under way end, and every mail that was begun be taken. */
  stop(): Promise<void>;
}

export interface TrafficOptions {
  callers?: number;
  savers?: number;
  senders?: number;
  /** Mails in all; unlimited unless told. */
  mails?: number;
  /** Where mail is sent: the tree's own listener unless told. */
  smtpPort?: number;
  /** What the senders write into their subjects, so that those of several times can be told apart. */
  mark?: string;
}

/** Calls, saves and mails at the same time, each as fast as it is answered, until `stop`. What each learned is written into the ledger. */
export function startTraffic(tree: Tree, subject: Subject, ledger: Ledger, options: TrafficOptions = {}): Traffic {
  const pool = new Pool(`http://127.0.0.1:${tree.port}`, { connections: 16, keepAliveTimeout: 4_000 });
  const mark = options.mark ?? "m";
  let isStopping = false;
  let mailsLeft = options.mails ?? Number.POSITIVE_INFINITY;
  let counter = ledger.entries.length;

  const caller = async (): Promise<void> => {
    while (!isStopping) {
      const n = ++counter;
      const record = await call(pool, tree, subject, `${mark}-${n}`, n % 4 === 0 ? "/stream" : "/row", newestVersion(ledger));
      ledger.entries.push(record);
      if (!record.isOk) await delay(pauseMs);
    }
  };

  const saver = async (): Promise<void> => {
    let base: Version | null = null;
    while (!isStopping) {
      const record: SaveRecord = {
        kind: "save",
        startedAt: Date.now(),
        endedAt: 0,
        status: null,
        code: null,
        isOk: false,
        versionId: null,
        sequence: null,
        error: null,
      };
      try {
        const answer: Answer = base === null ? await readVersions(subject) : await save(subject, base);
        record.status = answer.status;
        const isSave = base !== null;
        base = answer.status === 200 ? versionOf(answer) : null;
        if (base && !isSave) continue;
        record.isOk = base !== null;
        record.versionId = base?.id ?? null;
        record.sequence = base?.sequence ?? null;
        record.code = codeOf(answer.text);
        if (!base) record.error = answer.text.slice(0, 300);
      } catch (error) {
        base = null;
        record.error = reason(error);
      }
      record.endedAt = Date.now();
      ledger.entries.push(record);
      if (!record.isOk) await delay(pauseMs);
    }
  };

  const sender = async (id: number): Promise<void> => {
    for (let n = 1; !isStopping && mailsLeft > 0; n++) {
      mailsLeft--;
      const mail = `${mark}-${id}-${n}`;
      while (!(await sendMail(options.smtpPort ?? tree.smtpPort, subject, mail, ledger))) await delay(pauseMs);
    }
  };

  const all = [
    ...Array.from({ length: options.callers ?? 4 }, caller),
    ...Array.from({ length: options.savers ?? 1 }, saver),
    ...Array.from({ length: options.senders ?? 2 }, (_, id) => sender(id)),
  ];
  return {
    async stop() {
      isStopping = true;
      await Promise.all(all);
      await pool.destroy();
    },
  };
}

async function call(pool: Pool, tree: Tree, subject: Subject, key: string, path: string, versionBefore: number): Promise<CallRecord> {
  const record: CallRecord = {
    kind: "call",
    key,
    startedAt: Date.now(),
    endedAt: 0,
    status: null,
    code: null,
    runId: null,
    isCut: false,
    isOk: false,
    versionBefore,
    version: null,
    error: null,
  };
  try {
    const response = await pool.request({
      method: "POST",
      path: `${path}?key=${key}`,
      headers: { host: tree.host(`${subject.kap.slug}.kaps`), authorization: `Bearer ${subject.kap.token}` },
      signal: AbortSignal.timeout(hangMs),
    });
    record.status = response.statusCode;
    const runId = response.headers["x-kap-run-id"];
    record.runId = typeof runId === "string" ? runId : null;
    try {
      const text = await response.body.text();
      const answer = /^v(\d+) (\S+?)\.*$/.exec(text);
      record.isOk = response.statusCode === 200 && answer?.[2] === key;
      record.version = answer ? Number(answer[1]) : null;
      record.code = codeOf(text);
      if (!record.isOk) record.error = text.slice(0, 300);
    } catch (error) {
      record.isCut = true;
      record.error = reason(error);
    }
  } catch (error) {
    record.error = reason(error);
  }
  record.endedAt = Date.now();
  return record;
}

/** One try over SMTP on a connection of its own. Answers whether it was acknowledged; only a 250 counts. */
async function sendMail(port: number, subject: Subject, mail: string, ledger: Ledger): Promise<boolean> {
  const startedAt = Date.now();
  const transport = createTransport({
    host: "127.0.0.1",
    port,
    secure: false,
    ignoreTLS: true,
    connectionTimeout: 10_000,
    greetingTimeout: 30_000,
    socketTimeout: hangMs,
  });
  const note = (status: number | null, error: string | null): boolean => {
    const isOk = status === 250;
    ledger.entries.push({ kind: "mail", subject: mail, startedAt, endedAt: Date.now(), status, code: null, isOk, error });
    return isOk;
  };
  try {
    const sent = await transport.sendMail({
      from: "sender@elsewhere.example",
      to: subject.mailAddress,
      subject: mail,
      messageId: `<${mail}@elsewhere.example>`,
      date: new Date(startedAt),
      text: `Mail ${mail}.`,
    });
    return note(Number(sent.response.slice(0, 3)), sent.response);
  } catch (error) {
    const { responseCode } = error as { responseCode?: number };
    return note(responseCode ?? null, reason(error));
  } finally {
    transport.close();
  }
}

interface Version {
  id: string;
  sequence: number;
}

const readVersions = (subject: Subject): Promise<Answer> =>
  subject.org.call({ path: `${subject.path}/versions?limit=1`, timeoutMs: hangMs });

const save = (subject: Subject, base: Version): Promise<Answer> =>
  subject.org.call({
    method: "PUT",
    path: `${subject.path}/files`,
    body: { base_version_id: base.id, files: [{ path: "main.ts", content: program(base.sequence + 1) }] },
    timeoutMs: hangMs,
  });

/** The version a save made, or the newest of a list. */
function versionOf(answer: Answer): Version | null {
  const { version, versions } = answer.json<{ version?: Version; versions?: Version[] }>();
  return version ?? versions?.[0] ?? null;
}

function newestVersion(ledger: Ledger): number {
  return ledger.saves.reduce((newest, save) => Math.max(newest, save.sequence ?? 0), 1);
}

function codeOf(text: string): string | null {
  try {
    const { error } = JSON.parse(text) as { error?: { code?: unknown; message?: unknown } };
    return typeof error?.code === "string" && typeof error.message === "string" ? error.code : null;
  } catch {
    return null;
  }
}

const reason = (error: unknown): string => (error instanceof Error ? `${error.name}: ${error.message}` : String(error));
