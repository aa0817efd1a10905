import { z } from "zod";
import type { JobHandlers } from "#platform/jobs.ts";
import type { Deps } from "../../deps.ts";
import { releaseRuntimes } from "../../gateway/claims.ts";
import type { KapRow } from "./kap.ts";
import { purgeKap } from "./purge.ts";

const drainMs = 2_000;
const payload = z.object({ kap_id: z.string() });

/** Durable work of kaps. */
export function kapJobs(deps: Deps): JobHandlers {
  return {
    async "kaps.ensure-bucket"(input) {
      const { kap_id } = payload.parse(input);
      const kap: Pick<KapRow, "bucket"> | undefined = await deps.db("kaps").where({ id: kap_id }).whereNull("purged_at").first("bucket");
      if (kap) await deps.objects.ensureBucket(kap.bucket);
    },
    /** After a delete or disable: what serves the kap ends its runs and goes. A kap that serves again meanwhile keeps its runtimes. */
    async "kaps.release"(input) {
      const { kap_id } = payload.parse(input);
      const kap: Pick<KapRow, "state"> | undefined = await deps.db("kaps").where({ id: kap_id }).first("state");
      if (kap?.state !== "active") await releaseRuntimes(deps, kap_id, drainMs);
    },
    async "kaps.purge"(input) {
      await purgeKap(deps, payload.parse(input).kap_id);
    },
  };
}
