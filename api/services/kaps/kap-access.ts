import type { Deps } from "../../deps.ts";
import { members } from "../../http/access.ts";
import type { Caller } from "../../http/caller.ts";
import { findKap, type KapRow } from "./kap.ts";

/** Members who may see kaps; every other kind of credential hears 401 (decided §7.3). */
export const readers = members("kaps.read", { otherKinds: 401 });

/** Members who may change kaps. */
export const writers = members("kaps.write", { otherKinds: 401 });

/** `load` of every route of one kap: 404 for what is not the caller's. */
export function loadKap({ deps, caller, params }: { deps: Deps; caller: Caller; params: { kap_id: string } }): Promise<KapRow> {
  return findKap(deps.db, caller, params.kap_id);
}

/** Where every route of one kap starts. */
export const kapBase = "/v1/orgs/{org_id}/kaps/{kap_id}";
