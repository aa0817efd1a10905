import { integer, optionalText, readSettings, type SettingsOf, setting, text } from "#platform/config.ts";

/** What the API reads in a cluster besides its own settings; docs/configuration.md is made from this. */
export const clusterSettings = {
  namespace: setting("KAPSTONE_NAMESPACE", optionalText(), "Namespace of the release; that of the pod's service account when absent"),
  release: setting("KAPSTONE_RELEASE", text("kapstone"), "Value of the label app.kubernetes.io/instance on the release's pods and kaps"),
  resyncSeconds: setting(
    "KAPSTONE_RESYNC_SECONDS",
    integer(30, 1, 3_600),
    "Seconds between two comparisons of all kaps with their resources in the cluster",
  ),
  drainSeconds: setting(
    "KAPSTONE_DRAIN_SECONDS",
    integer(30, 0, 3_600),
    "Seconds for which calls and jobs under way may go on when the process is told to end",
  ),
} as const;

export type ClusterSettings = SettingsOf<typeof clusterSettings>;

/** Reads them. Throws `ConfigurationError` naming every bad variable. */
export function readClusterSettings(env: Record<string, string | undefined>): ClusterSettings {
  return readSettings(clusterSettings, env);
}
