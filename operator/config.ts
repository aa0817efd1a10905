import * as z from "zod";
import { integer, list, optionalText, port, readSettings, requiredText, type SettingsOf, setting, text } from "#platform/config.ts";
import { podOverrides } from "./desired/cron-jobs.ts";

/** Everything the operator reads from its environment; docs/configuration.md is made from this. */
export const operatorSettings = {
  namespace: setting("KAPSTONE_NAMESPACE", optionalText(), "Namespace of the release; that of the pod's service account when absent"),
  release: setting(
    "KAPSTONE_RELEASE",
    text("kapstone").refine((name) => /^[a-z]([-a-z0-9]{0,34}[a-z0-9])?$/.test(name), "must be a DNS label of at most 36 characters"),
    "What the names of the release's objects begin with",
  ),
  identity: setting("KAPSTONE_POD_NAME", optionalText(), "Name of this operator in the lease; the host name when absent"),
  monitoringHost: setting("KAPSTONE_MONITORING_HOST", text("127.0.0.1"), "Address of health and metrics"),
  monitoringPort: setting("KAPSTONE_MONITORING_PORT", port(8082), "Port of health and metrics"),
  databaseUrl: setting(
    "KAPSTONE_DATABASE_URL",
    requiredText(),
    "PostgreSQL of the platform: a login with CREATEROLE that owns its database",
    { secret: true },
  ),
  keys: setting(
    "KAPSTONE_KEYS",
    list("").refine((keys) => keys.length > 0, "is required"),
    "Deployment keys that seal secrets at rest: base64 of 32 bytes each, newest first",
    { secret: true },
  ),
  objects: setting(
    "KAPSTONE_OBJECTS",
    z.enum(["files", "s3"]).default("s3"),
    "Where objects are stored; buckets are looked after in s3 only",
  ),
  s3Endpoint: setting("KAPSTONE_S3_ENDPOINT", optionalText(), "Address of the S3 server"),
  s3Region: setting("KAPSTONE_S3_REGION", text("us-east-1"), "Region of the S3 server"),
  s3AccessKeyId: setting("KAPSTONE_S3_ACCESS_KEY_ID", optionalText(), "Access key of the S3 server"),
  s3SecretAccessKey: setting("KAPSTONE_S3_SECRET_ACCESS_KEY", optionalText(), "Secret key of the S3 server", { secret: true }),
  s3BucketPrefix: setting("KAPSTONE_S3_BUCKET_PREFIX", text("kapstone-"), "What every bucket's name starts with"),
  fireImage: setting("KAPSTONE_FIRE_IMAGE", requiredText(), "Image of the pods that fire schedules: the operator's own"),
  fireUrl: setting("KAPSTONE_INTERNAL_URL", requiredText(), "The API's internal listener, as those pods reach it"),
  fireSecret: setting(
    "KAPSTONE_FIRE_SECRET",
    optionalText(),
    "Secret with their token under the key KAPSTONE_FIRE_TOKEN; `<release>-fire` when absent",
  ),
  firePod: setting(
    "KAPSTONE_FIRE_POD",
    podOverrides,
    "JSON of what those pods have besides: imagePullPolicy, imagePullSecrets, nodeSelector, tolerations, affinity, priorityClassName, runtimeClassName, resources",
  ),
  workers: setting("KAPSTONE_OPERATOR_WORKERS", integer(8, 1, 100), "Kaps and pods that are looked after at the same time"),
  leaseSeconds: setting(
    "KAPSTONE_LEASE_SECONDS",
    integer(15, 3, 300),
    "Seconds after which another operator takes over from one that is silent",
  ),
  logLevel: setting(
    "KAPSTONE_LOG_LEVEL",
    z.enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("info"),
    "Level of the log",
  ),
} as const;

export type OperatorSettings = SettingsOf<typeof operatorSettings>;

/** Reads the operator's configuration once. Throws `ConfigurationError` naming every bad variable. */
export function readOperatorSettings(env: Record<string, string | undefined>): OperatorSettings {
  return readSettings(operatorSettings, env);
}
