import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";

/** What a round of mails is told on its command line, as JSON. */
export interface MailLoadOptions {
  port: number;
  recipients: string[];
  connections: number;
  mails: number;
  sizeBytes: number;
  /** Mails begun a second over all connections; without, each connection sends as fast as it is answered. */
  pace?: number;
  /** Begins every subject, so that rounds can be told apart. */
  round: string;
}

/** What it prints, as JSON. Times in milliseconds. */
export interface MailLoadResult {
  perSecond: number;
  /** From the last byte of a mail to its 250. */
  p50: number;
  p99: number;
  failures: number;
  /** By subject: when the last byte was sent, in milliseconds since 1970. */
  endedAt: Record<string, number>;
}

/** Sends mails over some connections, one transaction after another on each. */
async function sendMails(options: MailLoadOptions): Promise<MailLoadResult> {
  const endedAt: Record<string, number> = {};
  const tookMs: number[] = [];
  let failures = 0;
  let next = 0;
  const filler = `${"x".repeat(76)}\r\n`.repeat(Math.ceil(options.sizeBytes / 78));
  const began = performance.now();
  const connection = async (): Promise<void> => {
    const socket = connect({ host: "127.0.0.1", port: options.port, noDelay: true });
    await once(socket, "connect");
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const reply = async (): Promise<string> => {
      for (;;) {
        const { value, done } = await lines.next();
        if (done) throw new Error("the server hung up");
        if ((value as string)[3] !== "-") return value as string;
      }
    };
    const ask = (line: string): Promise<string> => {
      socket.write(`${line}\r\n`);
      return reply();
    };
    await reply();
    await ask("EHLO load.bench.example");
    for (let at = next++; at < options.mails; at = next++) {
      if (options.pace !== undefined) {
        const due = began + (at * 1_000) / options.pace;
        while (performance.now() < due) await new Promise((resolve) => setTimeout(resolve, Math.max(1, due - performance.now())));
      }
      const to = options.recipients[at % options.recipients.length] as string;
      const subject = `${options.round}-${at}`;
      await ask("MAIL FROM:<load@sender.example>");
      const named = await ask(`RCPT TO:<${to}>`);
      if (!named.startsWith("250")) throw new Error(`${to} was refused: ${named}`);
      await ask("DATA");
      const head = `From: <load@sender.example>\r\nTo: <${to}>\r\nSubject: ${subject}\r\nMessage-ID: <${subject}@sender.example>\r\n\r\n`;
      socket.write(`${head}${filler}`.slice(0, options.sizeBytes - 2));
      const sent = performance.now();
      endedAt[subject] = performance.timeOrigin + sent;
      const answer = await ask("\r\n.");
      tookMs.push(performance.now() - sent);
      if (!answer.startsWith("250")) failures += 1;
    }
    await ask("QUIT");
    socket.destroy();
  };
  await Promise.all(Array.from({ length: options.connections }, connection));
  const seconds = (performance.now() - began) / 1_000;
  tookMs.sort((a, b) => a - b);
  const at = (share: number): number => tookMs[Math.min(tookMs.length - 1, Math.floor(tookMs.length * share))] ?? 0;
  return { perSecond: options.mails / seconds, p50: at(0.5), p99: at(0.99), failures, endedAt };
}

console.log(JSON.stringify(await sendMails(JSON.parse(process.argv[2] ?? "{}") as MailLoadOptions)));
