import type { Deps } from "../../deps.ts";
import type { Caller } from "../../http/caller.ts";
import { type Detail, Refusal } from "../../http/refusal.ts";
import { type KapRow, lockKap, recordKapChange } from "./kap.ts";

/** Who may reach a kap. `revision` grows with every change. */
export interface Policy {
  audience: KapRow["audience"];
  invited: string[];
  revision: number;
}

export function policyOf(kap: KapRow): Policy {
  return { audience: kap.audience, invited: kap.invited, revision: kap.audience_revision };
}

const mailbox = /^[^\s@"(),:;<>[\\\]\p{Cc}\p{Cs}]{1,64}@/u;
const domain = /@(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Reads the entries of an invitation list: an address or `@domain` each, lowercased, each once, in the order given. A line per entry that is
 * neither.
 */
export function readInvited(entries: readonly string[]): { invited: string[]; problems: Detail[] } {
  const problems: Detail[] = [];
  const invited = new Set<string>();
  for (const [index, entry] of entries.entries()) {
    const text = entry.trim().toLowerCase();
    const isEntry = domain.test(text) && (text.startsWith("@") || mailbox.test(text)) && text.split("@").length === 2;
    if (isEntry) invited.add(text);
    else problems.push({ path: `invited.${index}`, message: `${JSON.stringify(entry.slice(0, 100))} is neither an address nor @domain` });
  }
  return { invited: [...invited], problems };
}

/**
 * Writes the policy when `base` is its present revision, else refuses with 409 `AUDIENCE_CONFLICT`. What is already so changes nothing and
 * keeps its revision. The next call of the kap is held to it: the gateway reads the policy with every call.
 */
export function setAudience(
  deps: Deps,
  caller: Caller,
  client: string | null,
  kapId: string,
  wanted: { audience: KapRow["audience"]; invited: string[]; base: number },
): Promise<{ policy: Policy; changed: boolean }> {
  return deps.db.transaction(async (trx) => {
    const before = await lockKap(trx, kapId);
    if (before.audience_revision !== wanted.base) {
      throw new Refusal(
        409,
        "AUDIENCE_CONFLICT",
        `base_revision ${wanted.base} is not the policy's revision any more, ${before.audience_revision} is: read the policy again and decide anew`,
        { details: { policy: policyOf(before) } },
      );
    }
    if (before.audience === wanted.audience && sameEntries(before.invited, wanted.invited))
      return { policy: policyOf(before), changed: false };
    const [kap]: KapRow[] = await trx("kaps")
      .where({ id: kapId })
      .increment("audience_revision", 1)
      .update({ audience: wanted.audience, invited: wanted.invited, updated_at: trx.fn.now() })
      .returning("*");
    if (!kap) throw new Error(`the kap ${kapId} vanished`);
    await recordKapChange(trx, caller, client, {
      kap_id: kapId,
      kind: "audience.changed",
      detail: { before: policyOf(before), after: policyOf(kap) },
    });
    await deps.kapChanged(trx, kapId);
    return { policy: policyOf(kap), changed: true };
  });
}

function sameEntries(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((entry, index) => entry === b[index]);
}
