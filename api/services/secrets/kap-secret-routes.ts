import { z } from "zod";
import { type Route, route } from "../../http/route.ts";
import type { KapRow } from "../kaps/kap.ts";
import { loadKap, readers, writers } from "../kaps/kap-access.ts";
import { findGroup, type GroupRow, presentGroup } from "./group.ts";
import { attachGroup, deleteKapSecret, detachGroup, setKapSecret } from "./kap-secrets.ts";
import { isRefreshPending } from "./refresh.ts";
import { answers, bodies } from "./schema.ts";
import { checkSecretName } from "./secret-name.ts";
import { secretsOfKap } from "./secrets.ts";

const kapPath = z.object({ org_id: z.string().optional(), kap_id: z.string() });
const secretPath = kapPath.extend({ name: z.string() });
const groupPath = kapPath.extend({ group_id: z.string() });

async function loadKapAndGroup(
  context: Parameters<typeof loadKap>[0] & { params: { group_id: string } },
): Promise<{ kap: KapRow; group: GroupRow }> {
  const kap = await loadKap(context);
  return { kap, group: await findGroup(context.deps.db, context.caller.org.id, context.params.group_id) };
}

/** Secrets of one kap, on both bases (spec 3 §4 B). */
export const kapSecretRoutes: readonly Route[] = ["/v1/orgs/{org_id}/kaps/{kap_id}", "/v1/kaps/{kap_id}"].flatMap((base) => [
  route({
    method: "GET",
    path: `${base}/secrets`,
    summary: "List the names of the secrets a kap sees, its own and those of its groups",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "Names only, and whether a runtime has yet to take up the latest", schema: answers.secrets } },
    async handler({ deps, resource: kap }) {
      const [secrets, pending] = await Promise.all([secretsOfKap(deps.db, kap.id), isRefreshPending(deps.db, kap.id)]);
      return { status: 200, body: { secrets, refresh_pending: pending } };
    },
  }),
  route({
    method: "PUT",
    path: `${base}/secrets/{name}`,
    summary: "Set a secret of a kap",
    description:
      "Holds from the next request on; `refresh_pending` is false when every live runtime has confirmed it. A name the kap already sees from a group is 409 `SECRET_NAME_CONFLICT`.",
    access: writers,
    params: secretPath,
    load: loadKap,
    body: bodies.value,
    responses: { 200: { description: "The receipt, without the value", schema: answers.set } },
    async handler({ deps, caller, client, resource: kap, params: { name }, body }) {
      checkSecretName(name);
      return {
        status: 200,
        body: { name, set: true, refresh_pending: await setKapSecret(deps, caller, client, kap.id, name, body.value) },
      };
    },
  }),
  route({
    method: "DELETE",
    path: `${base}/secrets/{name}`,
    summary: "Delete a secret of a kap's own",
    access: writers,
    params: secretPath,
    load: loadKap,
    responses: { 200: { description: "The receipt", schema: answers.deleted } },
    async handler({ deps, caller, client, resource: kap, params: { name } }) {
      return { status: 200, body: { name, deleted: true, refresh_pending: await deleteKapSecret(deps, caller, client, kap.id, name) } };
    },
  }),
  route({
    method: "GET",
    path: `${base}/secret-groups`,
    summary: "List the secret groups attached to a kap",
    access: readers,
    params: kapPath,
    load: loadKap,
    responses: { 200: { description: "The groups", schema: answers.groups } },
    async handler({ deps, resource: kap }) {
      const groups: { id: string; name: string }[] = await deps
        .db("kap_secret_groups as a")
        .join("secret_groups as g", "g.id", "a.group_id")
        .where("a.kap_id", kap.id)
        .orderBy("g.name")
        .select("g.id", "g.name");
      return { status: 200, body: { groups: groups.map(presentGroup) } };
    },
  }),
  route({
    method: "PUT",
    path: `${base}/secret-groups/{group_id}`,
    summary: "Attach a secret group to a kap",
    description:
      "Answered after the kap's runtimes have taken up its secrets. Any name the kap already sees makes the whole change 409 `SECRET_NAME_CONFLICT`.",
    access: writers,
    params: groupPath,
    load: loadKapAndGroup,
    responses: { 200: { description: "The receipt", schema: answers.attached } },
    async handler({ deps, caller, client, resource: { kap, group } }) {
      return { status: 200, body: { attached: true, refresh_pending: await attachGroup(deps, caller, client, kap.id, group.id) } };
    },
  }),
  route({
    method: "DELETE",
    path: `${base}/secret-groups/{group_id}`,
    summary: "Detach a secret group from a kap",
    access: writers,
    params: groupPath,
    load: loadKapAndGroup,
    responses: { 200: { description: "The receipt", schema: answers.detached } },
    async handler({ deps, caller, client, resource: { kap, group } }) {
      return { status: 200, body: { detached: true, refresh_pending: await detachGroup(deps, caller, client, kap.id, group.id) } };
    },
  }),
]);
