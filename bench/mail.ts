import { createSocket } from "node:dgram";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { MailLoadOptions, MailLoadResult } from "./mail-load.ts";
import { type Measure, ms, type Row } from "./measure.ts";
import { type MeasuredPlatform, startMeasuredPlatform } from "./platform.ts";
import { processorSeconds } from "./process-time.ts";
import { cores, end, freePort, median, script, startOn } from "./processes.ts";

const kaps = 4;
const mailBytes = 10_240;
const accepting = [1, 8, 32];
const mailsARound = 1_000;
/** Sent before: the rate is that of a server that has worked for a while, whose code has been compiled. */
const mailsToWarm = 1_000;
const settleMs = 180_000;
/** One mail at a time on an otherwise idle platform, and a stream of them. */
const paces = [10, 40];

const program = "export default { async email(message) { console.log(message.subject, Date.now()); } }";

/**
 * Mails of 10 KB through SMTP to the 250, with ingest, API and runtimes on one core: how many a second at some connections, while the accepted ones run; and how long after its
 * last byte a mail is in its handler, which logs the time. The name server answers at once that no name exists.
 */
export const mail: Measure = {
  name: "mail",
  async run(): Promise<Row[]> {
    const smtpPort = await freePort();
    const names = await startNameServer();
    const platform = await startMeasuredPlatform({
      KAPSTONE_SMTP_PORT: String(smtpPort),
      KAPSTONE_MAILS_PER_HOUR: "1000000",
      KAPSTONE_DNS_SERVERS: names.address,
    });
    const database = new pg.Client({ connectionString: platform.databaseUrl, options: "-c search_path=kapstone" });
    await database.connect();
    try {
      const recipients = await inboxes(platform);
      const send = (options: Pick<MailLoadOptions, "connections" | "mails" | "round"> & { pace?: number }): Promise<MailLoadResult> =>
        sendMails({ port: smtpPort, recipients, sizeBytes: mailBytes, ...options });
      await send({ connections: 4, mails: mailsToWarm, round: "warm" });
      await settled(database);
      const rows: Row[] = [];
      for (const connections of accepting) {
        await ageMails(database);
        const usedBefore = processorMs(platform);
        const sent = await send({ connections, mails: mailsARound, round: `accept${connections}` });
        const began = performance.now();
        await settled(database);
        const usedMs = (processorMs(platform) - usedBefore) / mailsARound;
        rows.push({
          measure: `mails of 10 KB accepted, ${connections} ${connections === 1 ? "connection" : "connections"}`,
          value: `${sent.perSecond.toFixed(0)}/s`,
          peer: `all have run ${((performance.now() - began) / 1_000).toFixed(1)} s later`,
          result: `end of DATA → 250 p50 ${ms(sent.p50)}, p99 ${ms(sent.p99)}; processor time ${ms(usedMs)} each, its run included`,
          goal: connections === 1 ? "" : "≥ 200/s",
          isMet: sent.failures === 0 && (connections === 1 || sent.perSecond >= 200),
        });
      }
      for (const pace of paces) {
        await ageMails(database);
        const sent = await send({ connections: 8, mails: pace * 10, pace, round: `pace${pace}` });
        await settled(database);
        const tookMs = await handlerStarts(database, sent);
        const p50 = median(tookMs);
        const p99 = tookMs[Math.floor(tookMs.length * 0.99)] ?? 0;
        rows.push({
          measure: `end of DATA → handler, ${pace} mails a second`,
          value: `p50 ${ms(p50)}, p99 ${ms(p99)}`,
          peer: `end of DATA → 250 p50 ${ms(sent.p50)}`,
          result: ms(p50),
          goal: "≤ 50 ms",
          isMet: p50 <= 50,
        });
      }
      return rows;
    } finally {
      await database.end();
      await platform.close();
      names.close();
    }
  },
};

async function inboxes(platform: MeasuredPlatform): Promise<string[]> {
  const org = await platform.signUp();
  const addresses: string[] = [];
  for (let n = 0; n < kaps; n++) {
    const kap = await platform.createKap(org, program);
    const answer = await platform.http.call({
      host: platform.host("api"),
      method: "POST",
      path: `/v1/orgs/${org.orgId}/kaps/${kap.id}/triggers`,
      headers: { authorization: `Bearer ${org.session}`, "x-service-client": "bench" },
      body: { kind: "inbox", file_path: "main.ts" },
    });
    if (answer.status !== 201) throw new Error(`an inbox was answered ${answer.status}: ${answer.text}`);
    addresses.push(`${kap.slug}@mail.localhost`);
  }
  return addresses;
}

async function sendMails(options: MailLoadOptions): Promise<MailLoadResult> {
  const { process: child, firstLine } = await startOn(cores.rest, script("mail-load.ts", JSON.stringify(options)));
  await end(child);
  const result = JSON.parse(firstLine) as MailLoadResult;
  if (result.failures > 0) throw new Error(`${result.failures} mails were not accepted while they were measured`);
  return result;
}

/** Waits until every mail has run, and checks that all went well. */
async function settled(database: pg.Client): Promise<void> {
  for (const until = performance.now() + settleMs; ; await delay(100)) {
    const { rows } = await database.query<{ open: number; failed: number }>(
      `select count(*) filter (where status in ('queued', 'running'))::int as open, count(*) filter (where status = 'failed')::int as failed
       from runs where trigger_kind = 'inbox'`,
    );
    if ((rows[0]?.failed ?? 0) > 0) throw new Error(`${rows[0]?.failed} mails failed while they were measured`);
    if (rows[0]?.open === 0) break;
    if (performance.now() > until) throw new Error(`${rows[0]?.open} mails have not run ${settleMs / 1_000} s after they were accepted`);
  }
}

/** What came before is of another hour: with the limit as it is shipped a kap never has more than 120 mails of its hour to count. */
async function ageMails(database: pg.Client): Promise<void> {
  await database.query("update mail_messages set received_at = received_at - interval '2 hours'");
}

/** Processor time that the platform's processes have used; 0 where the system does not tell it. */
function processorMs({ process: { pid } }: MeasuredPlatform): number {
  const parts = pid === undefined ? null : processorSeconds(pid);
  return parts === null ? 0 : (parts.gateway + parts.supervisor + parts.child) * 1_000;
}

/** From each mail's last byte to the time its handler logged, sorted. */
async function handlerStarts(database: pg.Client, sent: MailLoadResult): Promise<number[]> {
  const mails = Object.keys(sent.endedAt).length;
  for (const until = performance.now() + settleMs; ; await delay(100)) {
    const { rows } = await database.query<{ subject: string; at: number }>(
      "select split_part(text, ' ', 1) as subject, split_part(text, ' ', 2)::float8 as at from kap_log_lines where split_part(text, ' ', 1) = any($1)",
      [Object.keys(sent.endedAt)],
    );
    if (rows.length >= mails) return rows.map((row) => row.at - (sent.endedAt[row.subject] as number)).sort((a, b) => a - b);
    if (performance.now() > until) throw new Error(`the log has ${rows.length} lines of ${mails} mails`);
  }
}

/** A name server that knows no name and says so at once: what is measured is the platform, not the DNS of this machine. */
async function startNameServer(): Promise<{ address: string; close(): void }> {
  const socket = createSocket("udp4");
  socket.on("message", (question, from) => {
    const answer = Buffer.from(question);
    answer.writeUInt16BE(0x8183, 2); // a response: no such name
    socket.send(answer, from.port, from.address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return { address: `127.0.0.1:${socket.address().port}`, close: () => void socket.close() };
}
