import { isIP } from "node:net";
import { z } from "zod";
import { flag, integer, list, optionalText, port, readSettings, requiredText, type SettingsOf, setting, text } from "#platform/config.ts";

/** Whether a text is an address, or a network as address/prefix length. */
function isNetwork(text: string): boolean {
  const [address = "", prefix = "0", ...more] = text.split("/");
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  return more.length === 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= bits;
}

/** Everything the API reads from its environment; docs/configuration.md is made from this. */
export const apiSettings = {
  port: setting("KAPSTONE_PORT", port(8080), "Port of the public listener"),
  host: setting("KAPSTONE_HOST", text("127.0.0.1"), "Address of the public listener"),
  internalPort: setting(
    "KAPSTONE_INTERNAL_PORT",
    port(8081),
    "Port of the internal listener: runtimes, mail ingest, schedules, health and metrics",
  ),
  internalHost: setting("KAPSTONE_INTERNAL_HOST", text("127.0.0.1"), "Address of the internal listener"),
  internalUrl: setting(
    "KAPSTONE_INTERNAL_URL",
    optionalText(),
    "Where runtimes reach the internal listener; made from its address when absent",
  ),
  domain: setting("KAPSTONE_DOMAIN", text("localhost"), "Domain under which api, organisations, shares and kaps have their hosts"),
  scheme: setting("KAPSTONE_SCHEME", z.enum(["http", "https"]).default("http"), "Scheme of the outward addresses"),
  publicPort: setting(
    "KAPSTONE_PUBLIC_PORT",
    z
      .string()
      .regex(/^\d{1,5}$/, "must be a port number")
      .transform(Number)
      .optional(),
    "Port of the outward addresses, where a proxy in front makes it another",
  ),
  trustedProxies: setting(
    "KAPSTONE_TRUSTED_PROXIES",
    list("").refine((entries) => entries.every(isNetwork), "must be addresses or networks in CIDR form"),
    "Addresses, or networks in CIDR form, of proxies whose X-Forwarded-For counts",
  ),
  databaseUrl: setting(
    "KAPSTONE_DATABASE_URL",
    requiredText(),
    "PostgreSQL of the platform: a login with CREATEROLE that owns its database",
    { secret: true },
  ),
  databaseConnections: setting("KAPSTONE_DATABASE_CONNECTIONS", integer(10, 2, 500), "Connections of each of the two pools"),
  kapDatabaseHost: setting(
    "KAPSTONE_KAP_DATABASE_HOST",
    optionalText(),
    "Host and port at which runtimes reach the same PostgreSQL, where it is another for them",
  ),
  keys: setting(
    "KAPSTONE_KEYS",
    list("").refine((keys) => keys.length > 0, "is required"),
    "Deployment keys that seal secrets at rest: base64 of 32 bytes each, newest first",
    { secret: true },
  ),
  claimKey: setting(
    "KAPSTONE_CLAIM_KEY",
    requiredText(),
    "Ed25519 private key that signs what runtimes are assigned: PKCS#8 as base64 or PEM",
    {
      secret: true,
    },
  ),
  ingestToken: setting("KAPSTONE_INGEST_TOKEN", requiredText(), "Bearer token of mail ingest", { secret: true }),
  fireToken: setting("KAPSTONE_FIRE_TOKEN", requiredText(), "Bearer token of the schedule driver", { secret: true }),
  dataDir: setting("KAPSTONE_DATA_DIR", text("./data"), "Folder of everything a laptop keeps: database, objects, outbox"),
  objects: setting("KAPSTONE_OBJECTS", z.enum(["files", "s3"]).default("files"), "Where objects are stored"),
  s3Endpoint: setting("KAPSTONE_S3_ENDPOINT", optionalText(), "Address of the S3 server"),
  s3Region: setting("KAPSTONE_S3_REGION", text("us-east-1"), "Region of the S3 server"),
  s3AccessKeyId: setting("KAPSTONE_S3_ACCESS_KEY_ID", optionalText(), "Access key of the S3 server"),
  s3SecretAccessKey: setting("KAPSTONE_S3_SECRET_ACCESS_KEY", optionalText(), "Secret key of the S3 server", { secret: true }),
  s3BucketPrefix: setting("KAPSTONE_S3_BUCKET_PREFIX", text("kapstone-"), "What every bucket's name starts with"),
  smtpUrl: setting(
    "KAPSTONE_SMTP_URL",
    optionalText(),
    "Relay for the mail the platform sends (smtp://user:password@host:587); without one mail is written to the data folder's outbox",
    { secret: true },
  ),
  mailFrom: setting("KAPSTONE_MAIL_FROM", optionalText(), "Sender of the mail the platform sends; no-reply at the domain when absent"),
  requestsPerMinute: setting(
    "KAPSTONE_REQUESTS_PER_MINUTE",
    integer(600, 1, 100_000_000),
    "Requests a minute per credential, or per address when anonymous",
  ),
  callsPerMinute: setting(
    "KAPSTONE_CALLS_PER_MINUTE",
    integer(6_000, 1, 100_000_000),
    "Kap calls and store objects a minute per credential",
  ),
  loginsPerMinute: setting("KAPSTONE_LOGINS_PER_MINUTE", integer(10, 1, 100_000_000), "Logins a minute per address and per email"),
  signupsPerMinute: setting("KAPSTONE_SIGNUPS_PER_MINUTE", integer(60, 1, 100_000_000), "Signups a minute per address"),
  dnsServers: setting("KAPSTONE_DNS_SERVERS", list(""), "Name servers asked about the senders of mail; those of the machine when empty"),
  mailsPerHour: setting("KAPSTONE_MAILS_PER_HOUR", integer(120, 1, 100_000_000), "Mails an hour per kap"),
  minCadenceSeconds: setting("KAPSTONE_MIN_CADENCE_SECONDS", integer(900, 60, 86_400), "Shortest cadence of a schedule, in seconds"),
  recoveryDays: setting("KAPSTONE_RECOVERY_DAYS", integer(30, 0, 3_650), "Days in which a deleted kap can be recovered"),
  payloadDays: setting("KAPSTONE_PAYLOAD_DAYS", integer(7, 0, 3_650), "Days for which payloads of trigger runs are kept"),
  runDays: setting("KAPSTONE_RUN_DAYS", integer(90, 1, 3_650), "Days for which runs and their log lines are kept"),
  eventHours: setting("KAPSTONE_EVENT_HOURS", integer(24, 24, 8_760), "Hours for which events are kept, so that streams can resume"),
  memoryMb: setting("KAPSTONE_KAP_MEMORY_MB", integer(128, 16, 4_096), "Memory of a kap's isolate, in MiB"),
  requestWallMs: setting("KAPSTONE_KAP_REQUEST_WALL_MS", integer(30_000, 100, 3_600_000), "Wall time of a request run, in ms"),
  backgroundWallMs: setting(
    "KAPSTONE_KAP_BACKGROUND_WALL_MS",
    integer(900_000, 100, 86_400_000),
    "Wall time of a schedule or inbox run, in ms",
  ),
  requestCpuMs: setting("KAPSTONE_KAP_REQUEST_CPU_MS", integer(5_000, 10, 3_600_000), "CPU time of a request run, in ms"),
  backgroundCpuMs: setting("KAPSTONE_KAP_BACKGROUND_CPU_MS", integer(60_000, 10, 3_600_000), "CPU time of a schedule or inbox run, in ms"),
  concurrency: setting("KAPSTONE_KAP_CONCURRENCY", integer(50, 1, 10_000), "Runs of one kap at the same time in one runtime"),
  queue: setting("KAPSTONE_KAP_QUEUE", integer(200, 0, 100_000), "Runs of one kap that may wait in one runtime"),
  runtimesPerKap: setting(
    "KAPSTONE_KAP_RUNTIMES",
    integer(1, 1, 100),
    "Runtimes of one kap at the same time: another is claimed when those it has are nearly full, and released when idle",
  ),
  databaseQuotaMb: setting("KAPSTONE_KAP_DATABASE_MB", integer(1_024, 1, 1_048_576), "Database size of a kap, in MiB"),
  storeQuotaMb: setting("KAPSTONE_KAP_STORE_MB", integer(10_240, 1, 1_048_576), "File store size of a kap, in MiB"),
  runtimeIdleSeconds: setting(
    "KAPSTONE_RUNTIME_IDLE_SECONDS",
    integer(300, 1, 86_400),
    "Seconds without a call after which a kap's runtime is released",
  ),
  webhookLoopback: setting("KAPSTONE_WEBHOOK_LOOPBACK", flag(false), "Whether outgoing webhooks may reach loopback addresses"),
  jobConcurrency: setting("KAPSTONE_JOB_CONCURRENCY", integer(8, 1, 100), "Durable jobs at the same time in one process"),
  registryCacheDir: setting(
    "KAPSTONE_PACKAGE_CACHE_DIR",
    optionalText(),
    "Folder that keeps npm packages of kaps; below the data folder when absent",
  ),
  logLevel: setting(
    "KAPSTONE_LOG_LEVEL",
    z.enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("info"),
    "Level of the log",
  ),
} as const;

export type ApiConfig = SettingsOf<typeof apiSettings>;

/** Reads the API's configuration once. Throws `ConfigurationError` naming every bad variable. */
export function readApiConfig(env: Record<string, string | undefined>): ApiConfig {
  return readSettings(apiSettings, env);
}
