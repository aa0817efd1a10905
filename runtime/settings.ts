import { integer, list, requiredText, setting, text } from "#platform/config.ts";

/** Settings of a runtime's supervisor. Everything about the kap comes with its assignment. */
export const runtimeSettings = {
  data: setting("KAPSTONE_RUNTIME_DATA", requiredText(), "Address of the data listener: `unix:/path` or `tcp:HOST:PORT`"),
  control: setting("KAPSTONE_RUNTIME_CONTROL", requiredText(), "Address of the control listener, in the same forms"),
  claimKey: setting("KAPSTONE_CLAIM_PUBLIC_KEY", requiredText(), "Public key (Ed25519, SPKI, base64) that assignments are signed for"),
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
  logLevel: setting("KAPSTONE_LOG_LEVEL", text("info"), "Least level of the log lines"),
};
