import { once } from "node:events";
import { readFileSync, watchFile } from "node:fs";
import { ConfigurationError, printableSettings } from "#platform/config.ts";
import { createLogger } from "#platform/log.ts";
import { createMetrics, createMonitoringServer } from "#platform/metrics.ts";
import { type MailIngestSettings, mailIngestSettings, readMailIngestSettings } from "./config.ts";
import { createMailIngest } from "./server.ts";

/** How often the certificate's file is looked at: one that a cluster renews is replaced in the mounted folder, and nobody says so. */
const certificateMs = 5_000;

/** The process of mail ingest: SMTP outward, health and metrics inward. SIGTERM and SIGINT let messages under way end; SIGHUP reads the certificate again. */
async function main(): Promise<void> {
  const settings = readMailIngestSettings(process.env);
  const log = createLogger("mail-ingest", { level: settings.logLevel });
  log.info({ settings: printableSettings(mailIngestSettings, settings) }, "configuration");
  const metrics = createMetrics("mail-ingest");
  const ingest = createMailIngest(
    {
      host: settings.host,
      port: settings.port,
      mailDomain: `mail.${settings.domain}`,
      apiUrl: settings.apiUrl,
      ingestToken: settings.ingestToken,
      tls: readCertificate(settings),
      proxies: settings.proxies,
      limits: { connections: settings.connections, connectionsPerAddress: settings.connectionsPerAddress },
    },
    { log, metrics },
  );
  const monitoring = createMonitoringServer(metrics, ingest.checks);
  await ingest.listen();
  await once(monitoring.listen(settings.monitoringPort, settings.monitoringHost), "listening");
  log.info({ smtp: ingest.address(), monitoring: monitoring.address() }, "mail ingest is ready");

  const renew = (): void => {
    try {
      ingest.renewCertificate(readCertificate(settings));
      log.info("the certificate was read again");
    } catch (error) {
      log.error({ err: error }, "the certificate cannot be read again; the one in use stays");
    }
  };
  process.on("SIGHUP", renew);
  if (settings.tlsCertFile !== undefined) watchFile(settings.tlsCertFile, { interval: certificateMs, persistent: false }, renew);
  const signal = await Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
  log.info({ signal: signal[0] }, "stopping: messages under way may end");
  await ingest.close();
  monitoring.close();
  monitoring.closeAllConnections();
}

function readCertificate(settings: MailIngestSettings): { cert: string; key: string } | null {
  const { tlsCertFile, tlsKeyFile } = settings;
  if (tlsCertFile === undefined && tlsKeyFile === undefined) return null;
  if (tlsCertFile === undefined || tlsKeyFile === undefined) {
    throw new ConfigurationError("KAPSTONE_SMTP_TLS_CERT_FILE and KAPSTONE_SMTP_TLS_KEY_FILE belong together: set both, or neither.");
  }
  return { cert: readFileSync(tlsCertFile, "utf8"), key: readFileSync(tlsKeyFile, "utf8") };
}

try {
  await main();
} catch (error) {
  const isTaken = (error as NodeJS.ErrnoException).code === "EADDRINUSE";
  const fix = isTaken ? "; another program listens there: end it, or set KAPSTONE_SMTP_PORT or KAPSTONE_MONITORING_PORT" : "";
  process.stderr.write(`Mail ingest did not start: ${error instanceof Error ? error.message : String(error)}${fix}\n`);
  // One listener may be open already.
  process.exit(1);
}
