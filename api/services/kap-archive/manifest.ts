import { z } from "zod";
import { triggerKinds } from "#platform/trigger-kind.ts";
import type { Deps } from "../../deps.ts";
import { fileSetProblems } from "../kaps/file-set.ts";
import { type KapRow, presentKap } from "../kaps/kap.ts";
import { presentVersion, type VersionRow } from "../kaps/version.ts";
import { listTriggers } from "../triggers/trigger.ts";

export const archiveFormat = "kap-export/1";
/** Versions an archive may hold: each is built again when it is imported. */
export const maxVersions = 2_000;
const maxTriggers = 22; // the request trigger, an inbox, 20 schedules

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be a SHA-256 in hex");
const text = (max: number) => z.string().max(max);

const manifestVersion = z
  .object({
    id: text(100),
    sequence: z.int().min(1).max(2_147_483_647),
    main_file: text(1_024),
    files: z.array(z.object({ path: text(1_024), size: z.int().min(0), sha256 })),
    packages: z.array(z.object({ name: text(300), version: text(300), integrity: text(300), bytes: z.int().min(0).optional() })).max(5_000),
    restored_from: text(100).nullable(),
  })
  .superRefine((version, context) => {
    const files = version.files.map(({ path }) => ({ path, content: "" }));
    for (const { path, message } of fileSetProblems(files, version.main_file))
      context.addIssue({ code: "custom", path: path.split("."), message });
  });

const manifestTrigger = z.object({
  kind: z.enum(triggerKinds),
  file_path: text(1_024),
  enabled: z.boolean(),
  cron: text(1_000).nullable(),
  interval_seconds: z.int().min(1).max(31_622_400).nullable(),
  auto_replies: z.boolean(),
});

/** The parts of a manifest that an import goes by; what else is there is for people. Versions stand in the order of their sequence. */
export const importedManifest = z
  .object({
    format: z.literal(archiveFormat),
    kap: z.object({ id: text(100), slug: text(100), name: z.string().trim().min(1).max(200) }),
    versions: z.array(manifestVersion).min(1).max(maxVersions),
    triggers: z.array(manifestTrigger).max(maxTriggers),
    secret_names: z.array(text(200)).max(10_000),
    archive: z.object({ store_sql: z.object({ size: z.int().min(0), sha256 }) }),
  })
  .superRefine(({ versions }, context) => {
    for (const [index, version] of versions.entries()) {
      if (index > 0 && version.sequence <= (versions[index - 1]?.sequence ?? 0))
        context.addIssue({ code: "custom", path: ["versions", index, "sequence"], message: "must be greater than the one before" });
    }
  });
export type ImportedManifest = z.infer<typeof importedManifest>;
export type ManifestVersion = ImportedManifest["versions"][number];
export type ManifestTrigger = ImportedManifest["triggers"][number];

/** What is in a kap's export, with links to the downloads of its store (spec 3 §4 B). Secrets by name only. */
export async function describeKap(deps: Deps, kap: KapRow): Promise<Record<string, unknown> & { versions: unknown[] }> {
  const versions = await readVersions(deps, kap.id);
  const triggers = await listTriggers(deps.db, kap.id);
  const names: { name: string }[] = await deps.db("kap_secret_names").where({ kap_id: kap.id }).orderBy("name").select("name");
  const base = `${deps.addresses.api}/v1/kaps/${kap.id}`;
  return {
    format: archiveFormat,
    exported_at: new Date(),
    kap: presentKap(kap, deps.addresses),
    versions: versions.map((version) => ({ ...presentVersion(version), packages: version.packages })),
    triggers: triggers.map(({ kind, file_path, enabled, cron, interval_seconds, auto_replies }) => ({
      kind,
      file_path,
      enabled,
      cron,
      interval_seconds,
      auto_replies,
    })),
    secret_names: names.map(({ name }) => name),
    store: { sql: `${base}/db/export`, files: `${base}/store/files/export` },
  };
}

/** All versions of a kap, oldest first. */
export async function readVersions(deps: Deps, kapId: string): Promise<VersionRow[]> {
  return deps.db("kap_versions").where({ kap_id: kapId }).orderBy("sequence");
}
