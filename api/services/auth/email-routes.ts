import { z } from "zod";
import { members } from "../../http/access.ts";
import { refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { digestLinkToken } from "./one-time-link.ts";
import { accountOf } from "./password-routes.ts";

const confirm = route({
  method: "POST",
  path: "/v1/auth/email/confirm",
  summary: "Prove that your email is yours, with the token of a mailed link",
  description:
    "The link is mailed when a second factor is enrolled on an account whose email is not proved. It counts only in a session of that account, and until the next such link; it does not expire.",
  access: members(null),
  body: z.strictObject({ token: z.string().min(1).max(200) }),
  responses: {
    204: { description: "Proved: from now on a reset of the password leaves the second factor" },
    410: { description: "Used, replaced by a newer one, or another account's" },
  },
  handler: async ({ deps, caller, body }) => {
    const account = await accountOf(deps.db, caller);
    await deps.db.transaction(async (trx) => {
      const proved = await trx("accounts")
        .where({ id: account.id, email_proof_digest: digestLinkToken(body.token) })
        .update({ email_proved_at: trx.fn.now(), email_proof_digest: null, updated_at: trx.fn.now() });
      if (proved === 0) {
        throw refuse("GONE", "this link was used, or replaced by a newer one, or is another account's: sign in as whom it was mailed to");
      }
      await recordAudit(trx, caller, {
        action: "email.proved",
        target: { kind: "account", id: account.id, name: account.email },
        detail: { by: "confirmation" },
      });
    });
    return { status: 204 };
  },
});

export const emailRoutes = [confirm];
