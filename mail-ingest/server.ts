import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createSecureContext } from "node:tls";
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from "smtp-server";
import type { Logger } from "#platform/log.ts";
import type { Metrics, ReadinessChecks } from "#platform/metrics.ts";
import { connectMailApi } from "./api-client.ts";
import { Arrivals } from "./arrivals.ts";
import { ingestMetrics } from "./ingest-metrics.ts";
import { defaultMailLimits, type MailLimits } from "./limits.ts";
import { MailRefusal } from "./mail-refusal.ts";
import { receiveMessage } from "./receive.ts";

type Connection = SMTPServer["connections"] extends Set<infer T> ? T : never;

export interface MailIngestConfig {
  host: string;
  /** 0 for any free one. */
  port: number;
  /** The name in the greeting: the domain of the addresses it takes mail for. */
  mailDomain: string;
  /** The API's internal listener. */
  apiUrl: string;
  ingestToken: string;
  /** PEM texts; without them STARTTLS is not offered. */
  tls: { cert: string; key: string } | null;
  /** Load balancers that announce the sender's address by the PROXY protocol. */
  proxies: readonly string[];
  limits?: Partial<MailLimits>;
}

export interface MailIngest {
  listen(): Promise<void>;
  /** Where it listens; after `listen`. */
  address(): { host: string; port: number };
  /** From the next STARTTLS on. Throws when it is no certificate; without one at the start there is nothing to renew. */
  renewCertificate(tls: MailIngestConfig["tls"]): void;
  /** Takes nothing new, lets messages under way end for `drainMs`, then closes what is left. */
  close(): Promise<void>;
  /** `api`: the API takes mail; `smtp`: this listens, and is not about to stop. */
  checks: { api: ReadinessChecks[string]; smtp: ReadinessChecks[string] };
}

/**
 * SMTP in front of the API (decided §7.2, §7.4): every recipient is judged by the API when it is named, every message is streamed to it through the scanner, and
 * 250 is said only when the API has stored it. Nothing is kept here.
 */
export function createMailIngest(config: MailIngestConfig, deps: { log: Logger; metrics: Metrics }): MailIngest {
  const limits = { ...defaultMailLimits, ...config.limits };
  const log = deps.log;
  const metrics = ingestMetrics(deps.metrics);
  const api = connectMailApi(config.apiUrl, config.ingestToken, limits);
  const arrivals = new Arrivals(limits);
  const receiving = new Set<string>();
  let isDraining = false;

  const smtp = new SMTPServer({
    name: config.mailDomain,
    size: limits.messageBytes,
    maxClients: limits.connections,
    socketTimeout: limits.idleMs,
    closeTimeout: limits.drainMs,
    maxCommandLength: 4_096,
    disableReverseLookup: true,
    hideENHANCEDSTATUSCODES: false,
    // No mail is sent through here, so nobody logs in; the rest are jests and leaks of old servers.
    disabledCommands: ["AUTH", "WIZ", "SHELL", "KILL", "XCLIENT", "XFORWARD", ...(config.tls ? [] : ["STARTTLS"])],
    ...(config.tls ?? {}),
    minVersion: "TLSv1.2",
    useProxy: config.proxies.length > 0 ? [...config.proxies] : false,
    logger: false,
    onConnect(session, done) {
      metrics.connections.inc();
      counted.add(session);
      const refusal = arrivals.arrive(session);
      if (refusal) return done(refusal);
      const expiry = setTimeout(
        () => connectionOf(session)?.send(421, "This connection has lasted too long; connect again."),
        limits.connectionMs,
      );
      expiries.set(session, expiry);
      done();
    },
    onClose(session) {
      if (!counted.delete(session)) return; // it went before it was greeted, as probes of load balancers do
      metrics.connections.dec();
      arrivals.leave(session);
      clearTimeout(expiries.get(session));
    },
    onRcptTo(address, session, done) {
      arrivals.judge(api, address.address, session).then(
        () => {
          metrics.recipients.inc({ code: 250 });
          done();
        },
        (error: unknown) => {
          const refusal = asRefusal(error);
          metrics.recipients.inc({ code: refusal.responseCode });
          log.info(
            { address: address.address, remote: session.remoteAddress, code: refusal.responseCode, err: refusal.cause },
            refusal.message,
          );
          done(refusal);
        },
      );
    },
    onData(stream, session, done) {
      receiving.add(session.id);
      receive(stream, session).then(
        () => done(null, "stored"),
        (refusal: MailRefusal) => done(refusal),
      );
    },
  });
  const counted = new WeakSet<SMTPServerSession>();
  const expiries = new WeakMap<SMTPServerSession, NodeJS.Timeout>();
  smtp.on("error", (error) => log.info({ err: error }, "an SMTP connection failed"));

  function connectionOf(session: SMTPServerSession): Connection | undefined {
    return [...smtp.connections].find((connection) => connection.id === session.id);
  }

  async function receive(stream: SMTPServerDataStream, session: SMTPServerSession): Promise<void> {
    const began = performance.now();
    const envelope = arrivals.envelopeOf(session);
    const about = { from: envelope.from, recipients: envelope.recipients, remote: session.remoteAddress };
    let code: number | "lost" = 250;
    try {
      // The sender hears a refusal after its last byte; one that sends without end hears it when it has sent twice what it may.
      const hangUp = (refusal: MailRefusal) => {
        connectionOf(session)?.send(refusal.responseCode, refusal.message);
        connectionOf(session)?.close();
      };
      await receiveMessage(api, envelope, stream, limits, hangUp);
      log.info({ ...about, bytes: stream.byteLength }, "a message was stored");
    } catch (error) {
      const refusal = asRefusal(error);
      code = stream.readableEnded ? refusal.responseCode : "lost";
      log.info({ ...about, bytes: stream.byteLength, code, err: refusal.cause }, refusal.message);
      throw refusal;
    } finally {
      receiving.delete(session.id);
      metrics.messages.inc({ code });
      metrics.bytes.inc(stream.byteLength);
      metrics.seconds.observe((performance.now() - began) / 1_000);
      if (isDraining) setImmediate(() => connectionOf(session)?.send(421, "The server is stopping; connect again."));
    }
  }

  return {
    checks: {
      api: (signal) => api.check(signal),
      smtp: async () => {
        if (isDraining || !smtp.server.listening) throw new Error("mail is not taken: the listener is closed");
      },
    },
    async listen() {
      await once(smtp.listen(config.port, config.host), "listening");
    },
    address() {
      const { address, port } = smtp.server.address() as AddressInfo;
      return { host: address, port };
    },
    renewCertificate(tls) {
      if (!config.tls || !tls) return;
      createSecureContext(tls); // smtp-server would drop the one in use before it finds the new one bad
      smtp.updateSecureContext(tls);
    },
    async close() {
      isDraining = true;
      const closed = new Promise<void>((resolve) => smtp.close(resolve));
      for (const connection of smtp.connections) {
        if (!receiving.has(connection.id)) connection.send(421, "The server is stopping; connect again.");
      }
      await closed;
      await api.close();
    },
  };
}

/** What is no refusal is a fault of ours: the sender keeps the message and tries again. */
function asRefusal(error: unknown): MailRefusal {
  if (error instanceof MailRefusal) return error;
  return new MailRefusal(451, "The message could not be taken because of an error here; please try again later.", { cause: error });
}
