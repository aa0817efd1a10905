import { z } from "zod";
import type { Deps } from "../../deps.ts";
import { guestLinkMinutes, mintHandOver } from "../../gateway/hand-over-code.ts";
import { isListed } from "../../gateway/hand-over-visitor.ts";
import { enqueueMail } from "../auth/mailing.ts";
import type { KapRow } from "../kaps/kap.ts";

/** The durable job that mails an invited person a link. */
export const guestLinkJob = "pages.guest-link";

const wanted = z.object({ kap_id: z.string(), email: z.string(), to: z.string() });

/** Mails a link that opens the kap, if the address is on its list; else does nothing. Code and mail come to be in one transaction. */
export async function mailGuestLink(deps: Deps, payload: unknown): Promise<void> {
  const { kap_id, email, to } = wanted.parse(payload);
  const kap: (Pick<KapRow, "id" | "slug" | "name" | "invited"> & { org_name: string }) | undefined = await deps
    .db("kaps as k")
    .join("orgs as o", "o.id", "k.org_id")
    .where({ "k.id": kap_id, "k.audience": "invited", "k.state": "active" })
    .first("k.id", "k.slug", "k.name", "k.invited", "o.name as org_name");
  if (!kap || !isListed(kap.invited, email)) return;
  await deps.db.transaction(async (trx) => {
    const code = await mintHandOver(trx, kap.id, { email });
    const link = `${deps.addresses.kap(kap.slug)}/__kaps/enter?${new URLSearchParams({ code, to }).toString()}`;
    await enqueueMail(deps, trx, {
      to: email,
      subject: `Your link to ${kap.name}`,
      text: `You asked for a link to ${kap.name} of ${kap.org_name}.\n\nOpen it within ${guestLinkMinutes} minutes; it works once:\n${link}\n\nIf you did not ask for it, do nothing.\n`,
    });
  });
}
