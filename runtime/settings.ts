import { integer, list, requiredText, setting, text } from "#platform/config.ts";

/** Settings of a runtime's supervisor. Everything about the kap comes with its assignment. */
export const runtimeSettings = {
  data: setting("KAPSTONE_RUNTIME_DATA", requiredText(), "Address of the data listener: `unix:/path` or `tcp:HOST:PORT`"),
  control: setting("KAPSTONE_RUNTIME_CONTROL", requiredText(), "Address of the control listener, in the same forms"),
  claimKey: setting(
    "KAPSTONE_CLAIM_PUBLIC_KEY",
    requiredText(),
    "Public key (Ed25519) that assignments are signed for: SPKI as base64 or PEM, or a PEM certificate",
  ),
  egressAllow: setting(
    "KAPSTONE_RUNTIME_EGRESS_ALLOW",
    list(""),
    "Comma list of `host:port` that a kap's fetch may reach although private",
  ),
  memoryMb: setting(
    "KAPSTONE_RUNTIME_MEMORY_MB",
    integer(128, 8, 4096),
    "Memory of the warm isolate; an assignment with another limit builds a new one",
  ),
  recycleRuns: setting(
    "KAPSTONE_RUNTIME_RECYCLE_RUNS",
    integer(1_000_000, 1, 1_000_000_000),
    "Runs after which the process that serves a kap is replaced by its warm spare, without a call being lost",
  ),
  recycleGrowthMb: setting(
    "KAPSTONE_RUNTIME_RECYCLE_GROWTH_MB",
    integer(256, 8, 65_536),
    "Memory that process may gain before it is replaced so; looked at from its 1,000th run on",
  ),
  logLevel: setting("KAPSTONE_LOG_LEVEL", text("info"), "Least level of the log lines"),
};
