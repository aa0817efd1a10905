import { z } from "zod";
import { integer, list, optionalText, port, readSettings, requiredText, type SettingsOf, setting, text } from "#platform/config.ts";

/** Everything mail ingest reads from its environment; docs/configuration.md is made from this. */
export const mailIngestSettings = {
  host: setting("KAPSTONE_SMTP_HOST", text("127.0.0.1"), "Address of the SMTP listener"),
  port: setting("KAPSTONE_SMTP_PORT", port(2525), "Port of the SMTP listener"),
  monitoringHost: setting("KAPSTONE_MONITORING_HOST", text("127.0.0.1"), "Address of health and metrics"),
  monitoringPort: setting("KAPSTONE_MONITORING_PORT", port(8082), "Port of health and metrics"),
  domain: setting("KAPSTONE_DOMAIN", text("localhost"), "Domain of the deployment; mail is for addresses at mail.{domain}"),
  apiUrl: setting("KAPSTONE_INTERNAL_URL", text("http://127.0.0.1:8081"), "The API's internal listener"),
  ingestToken: setting("KAPSTONE_INGEST_TOKEN", requiredText(), "Bearer token of mail ingest", { secret: true }),
  tlsCertFile: setting(
    "KAPSTONE_SMTP_TLS_CERT_FILE",
    optionalText(),
    "PEM file of the certificate chain for STARTTLS; read again when it changes, and on SIGHUP",
  ),
  tlsKeyFile: setting("KAPSTONE_SMTP_TLS_KEY_FILE", optionalText(), "PEM file of the certificate's key"),
  proxies: setting("KAPSTONE_SMTP_PROXIES", list(""), "Addresses of load balancers that speak the PROXY protocol to this listener"),
  connections: setting("KAPSTONE_SMTP_CONNECTIONS", integer(500, 1, 100_000), "SMTP connections at the same time"),
  connectionsPerAddress: setting(
    "KAPSTONE_SMTP_CONNECTIONS_PER_ADDRESS",
    integer(50, 1, 100_000),
    "SMTP connections at the same time from one address",
  ),
  logLevel: setting(
    "KAPSTONE_LOG_LEVEL",
    z.enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("info"),
    "Level of the log",
  ),
} as const;

export type MailIngestSettings = SettingsOf<typeof mailIngestSettings>;

/** Reads mail ingest's configuration once. Throws `ConfigurationError` naming every bad variable. */
export function readMailIngestSettings(env: Record<string, string | undefined>): MailIngestSettings {
  return readSettings(mailIngestSettings, env);
}
