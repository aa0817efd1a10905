import { z } from "zod";
import type { Deps } from "../../deps.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { type Route, route, type Service } from "../../http/route.ts";
import { findKap, type KapRow, presentKap, refuseDeleted } from "../kaps/kap.ts";
import { presentVersion } from "../kaps/version.ts";
import { importKap } from "./import-kap.ts";
import { describeKap } from "./manifest.ts";
import { discardJob, discardReserved } from "./reserve.ts";
import { writeArchive } from "./write-archive.ts";

/** What an export tells everything of: who may read a kap's data. */
const exporters = members("kaps.data", { otherKinds: 401 });
const importers = members("kaps.write", { otherKinds: 401 });
/** The reader of the archive counts bytes against what the deployment allows of data. */
const noFixedLimit = Number.MAX_SAFE_INTEGER;

const manifestAnswer = z.looseObject({
  format: z.literal("kap-export/1"),
  kap: z.looseObject({ id: z.string(), slug: z.string() }),
  versions: z.array(z.looseObject({ id: z.string(), sequence: z.int() })),
  triggers: z.array(z.looseObject({ kind: z.string() })),
  secret_names: z.array(z.string()),
  store: z.object({ sql: z.url(), files: z.url() }),
});

async function load({ deps, caller, params }: { deps: Deps; caller: Caller; params: Record<string, string> }): Promise<KapRow> {
  return findKap(deps.db, caller, params.kap_id ?? "");
}

/** The routes on each of the two equivalent bases of a kap (spec 3 §4 B). */
function routesAt(base: string): Route[] {
  return [
    route({
      method: "GET",
      path: `${base}/{kap_id}/export/manifest`,
      summary: "What an export of the kap holds, with links to its store's downloads",
      description: "Secrets by name only: values never leave.",
      access: exporters,
      load,
      responses: { 200: { description: "The manifest", schema: manifestAnswer } },
      async handler({ deps, resource: kap }) {
        refuseDeleted(kap);
        return { status: 200, body: await describeKap(deps, kap) };
      },
    }),
    route({
      method: "GET",
      path: `${base}/{kap_id}/export`,
      summary: "The whole kap as one tar",
      description:
        "`manifest.json`, `versions/{sequence}/…`, `store.sql`, `files/…` and `checksums.json`; `POST …/kaps/import` makes the same kap of it, here or on another instance.",
      access: exporters,
      load,
      responses: { 200: { description: "The archive", contentType: "application/x-tar" } },
      async handler({ deps, resource: kap, request, signal }) {
        refuseDeleted(kap);
        const headers = { "content-type": "application/x-tar", "content-disposition": `attachment; filename="${kap.slug}.tar"` };
        if (request.method === "HEAD") return { status: 200, headers };
        return { status: 200, stream: await writeArchive(deps, kap, signal), headers };
      },
    }),
    route({
      method: "POST",
      path: `${base}/import`,
      summary: "Make a kap from an exported tar",
      description:
        "All or nothing. Versions are built again with their locked packages, the database is loaded as the kap's own role, files keep their content types. The audience is `members`, and secrets " +
        "come by name only: set their values. What is wrong with the archive is 422 naming the entry.",
      access: importers,
      rawBody: { raw: true, description: "The archive", contentTypes: ["application/x-tar"] },
      bodyLimit: noFixedLimit,
      responses: {
        201: {
          description: "The kap, its newest version, its token (shown once) and the names of the secrets to set",
          schema: z.object({
            kap: z.looseObject({ id: z.string() }),
            version: z.looseObject({ id: z.string() }),
            address: z.url(),
            bypass_token: z.string(),
            secret_names: z.array(z.string()),
          }),
        },
      },
      secretFields: ["bypass_token"],
      async handler({ deps, caller, client, request, signal }) {
        const { kap, version, bypassToken, secretNames } = await importKap(deps, caller, client, request, signal);
        return {
          status: 201,
          body: {
            kap: presentKap(kap, deps.addresses),
            version: presentVersion(version),
            address: deps.addresses.kap(kap.slug),
            bypass_token: bypassToken,
            secret_names: secretNames,
          },
        };
      },
    }),
  ];
}

/** A kap as one tar, and a kap from one. */
export const kapArchiveService: Service = {
  name: "kap-archive",
  envelope: "kaps",
  clientHeader: true,
  routes: [...routesAt("/v1/orgs/{org_id}/kaps"), ...routesAt("/v1/kaps")],
  jobs: (deps) => ({ [discardJob]: (payload) => discardReserved(deps, payload) }),
};
