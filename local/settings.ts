import { integer, port, readSettings, type SettingsOf, setting, text } from "#platform/config.ts";

/** What only the laptop's process tree reads, beside the settings of its parts; docs/configuration.md is made from this. */
export const localSettings = {
  smtpPort: setting("KAPSTONE_SMTP_PORT", port(2525), "Port of the SMTP listener"),
  smtpHost: setting("KAPSTONE_SMTP_HOST", text("127.0.0.1"), "Address of the SMTP listener"),
  postgresPort: setting(
    "KAPSTONE_POSTGRES_PORT",
    port(0),
    "Port of the embedded PostgreSQL on 127.0.0.1; 0: the last one, or any free one",
  ),
  warmRuntimes: setting("KAPSTONE_WARM_RUNTIMES", integer(2, 1, 100), "Runtimes that wait, started, for the next kap"),
  egressAllow: setting(
    "KAPSTONE_RUNTIME_EGRESS_ALLOW",
    text(""),
    "Comma list of `host:port` that a kap's fetch may reach although private",
  ),
};

export type LocalConfig = SettingsOf<typeof localSettings>;

/** Reads them. Throws `ConfigurationError` naming every bad variable. */
export function readLocalConfig(env: Record<string, string | undefined>): LocalConfig {
  return readSettings(localSettings, env);
}
