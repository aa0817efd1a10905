import { z } from "zod";
import { addJob } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import type { Service } from "../../http/route.ts";
import { groupRoutes } from "./group-routes.ts";
import { kapSecretRoutes } from "./kap-secret-routes.ts";
import { confirmRefresh } from "./refresh.ts";
import { resealSecrets } from "./reseal.ts";

/** Secrets of kaps and the groups they share. */
export const secretsService: Service = {
  name: "secrets",
  envelope: "kaps",
  clientHeader: true,
  bodyLimit: 2 * 1024 * 1024,
  routes: [...kapSecretRoutes, ...groupRoutes],
  jobs: (deps) => ({
    /** Asks the runtimes that have not confirmed yet. Fails, and so comes again, until they have. */
    async "secrets.refresh"(input) {
      const { kap_id } = z.object({ kap_id: z.string() }).parse(input);
      if (await confirmRefresh(deps, [kap_id])) throw new Error("a runtime has not taken up its secrets yet");
    },
    async "secrets.reseal"() {
      const sealed = await resealSecrets(deps.db, deps.keyring);
      if (sealed > 0) deps.log.info({ sealed }, "secrets were sealed anew with the first deployment key");
    },
  }),
};

/** At start, since that is when the deployment's keys may have changed: seals what an older key sealed. */
export function startReseal(deps: Deps): Promise<void> {
  return addJob(deps.db, "secrets.reseal", {}, { key: "secrets.reseal" });
}
