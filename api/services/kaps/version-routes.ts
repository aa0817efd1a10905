import { z } from "zod";
import { cursorQuery, decodeCursor, encodeCursor, limitQuery, pageOf } from "../../http/page.ts";
import { invalid } from "../../http/refusal.ts";
import { type Route, route } from "../../http/route.ts";
import { diffFiles } from "./diff.ts";
import { readContents } from "./file-set.ts";
import { type KapRow, refuseDeleted } from "./kap.ts";
import { kapBase, loadKap, readers, writers } from "./kap-access.ts";
import { restoreVersion, saveFiles } from "./save.ts";
import { answers, bodies, kapPath, queries } from "./schema.ts";
import { findVersion, presentVersion, type VersionRow } from "./version.ts";

const page = z.object({ limit: limitQuery(), cursor: cursorQuery });
const versionPath = kapPath.extend({ version_id: z.string() });

/** Versions of a kap: saving, listing, reading, comparing, restoring. */
export const versionRoutes: readonly Route[] = [
  route({
    method: "PUT",
    path: `${kapBase}/files`,
    summary: "Save a new version that replaces the whole file set",
    description:
      "`base_version_id` must be the current version, else 409 `VERSION_CONFLICT`. What does not compile is 422 `BUILD_FAILED` and changes nothing; " +
      "type errors come back as diagnostics, and refuse only with `?strict=true`.",
    access: writers,
    params: kapPath,
    load: loadKap,
    query: queries.save,
    body: bodies.save,
    responses: { 200: { description: "The new version", schema: answers.saved } },
    async handler({ deps, caller, client, resource: kap, query, body, signal }) {
      refuseDeleted(kap);
      const save = { base: body.base_version_id, mainFile: body.main_file ?? null, files: body.files, strict: query.strict };
      const { version, diagnostics } = await saveFiles(deps, caller, client, kap, save, signal);
      return { status: 200, body: { version: presentVersion(version), diagnostics } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/versions`,
    summary: "List the versions, newest first",
    access: readers,
    params: kapPath,
    load: loadKap,
    query: page,
    responses: { 200: { description: "A page of versions", schema: answers.versions } },
    async handler({ deps, resource: kap, query }) {
      const select = deps.db("kap_versions").where({ kap_id: kap.id }).orderBy("sequence", "desc");
      if (query.cursor !== undefined) void select.where("sequence", "<", sequenceOf(query.cursor));
      const rows: VersionRow[] = await select.limit(query.limit + 1);
      const { items, next_cursor } = pageOf(rows, query.limit, (row) => encodeCursor([row.sequence]));
      return { status: 200, body: { versions: items.map((version) => presentVersion(version)), next_cursor } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/versions/{version_id}`,
    summary: "Read a version with the contents of its files",
    access: readers,
    params: versionPath,
    load: loadVersion,
    responses: { 200: { description: "The version", schema: answers.version } },
    async handler({ deps, resource: { kap, version } }) {
      const files = await readContents(deps.db, kap.id, version.files);
      return { status: 200, body: { version: presentVersion(version, files), diagnostics: version.diagnostics } };
    },
  }),
  route({
    method: "POST",
    path: `${kapBase}/versions/{version_id}/restore`,
    summary: "Save an earlier version's files as the newest version",
    description: "Built with the packages that version was saved with. The rule of `base_version_id` is that of a save.",
    access: writers,
    params: versionPath,
    load: loadVersion,
    body: bodies.restore,
    responses: { 200: { description: "The new version", schema: answers.saved } },
    async handler({ deps, caller, client, resource: { kap, version }, body, signal }) {
      refuseDeleted(kap);
      const saved = await restoreVersion(deps, caller, client, kap, version, body.base_version_id, signal);
      return { status: 200, body: { version: presentVersion(saved.version), diagnostics: saved.diagnostics } };
    },
  }),
  route({
    method: "GET",
    path: `${kapBase}/diff`,
    summary: "Compare two versions file by file",
    access: readers,
    params: kapPath,
    load: loadKap,
    query: queries.diff,
    responses: { 200: { description: "What changed, with whole texts before and after", schema: answers.diff } },
    async handler({ deps, resource: kap, query }) {
      const [from, to] = await Promise.all([findVersion(deps.db, kap.id, query.from), findVersion(deps.db, kap.id, query.to)]);
      const [before, after] = await Promise.all([readContents(deps.db, kap.id, from.files), readContents(deps.db, kap.id, to.files)]);
      return {
        status: 200,
        body: {
          from: from.id,
          to: to.id,
          main_file: { before: from.main_file, after: to.main_file },
          files: diffFiles(before, after),
        },
      };
    },
  }),
];

async function loadVersion(
  context: Parameters<typeof loadKap>[0] & { params: { version_id: string } },
): Promise<{ kap: KapRow; version: VersionRow }> {
  const kap = await loadKap(context);
  return { kap, version: await findVersion(context.deps.db, kap.id, context.params.version_id) };
}

function sequenceOf(cursor: string): number {
  const [sequence] = decodeCursor(cursor, 1);
  if (typeof sequence !== "number" || !Number.isSafeInteger(sequence) || Math.abs(sequence) > 2_147_483_647)
    throw invalid({ path: "cursor", message: "is not a cursor of this list: use the next_cursor of its last page" });
  return sequence;
}
