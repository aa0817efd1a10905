import { z } from "zod";
import { members, unauthenticated } from "../../http/access.ts";
import { invalid, refuse } from "../../http/refusal.ts";
import { route } from "../../http/route.ts";
import { recordAudit } from "./audit.ts";
import { mailProof } from "./email-proof.ts";
import { accountOf } from "./password-routes.ts";
import { proveOwnPassword } from "./prove.ts";
import { codeText, passwordText } from "./schema.ts";
import { confirmTotp, newTotp, removeTotp, storePendingSecret } from "./totp.ts";

const access = members(null, { whileEnrolling: true });
const path = "/v1/auth/mfa/totp";

const enrol = route({
  method: "POST",
  path,
  summary: "Begin to enrol a second factor (TOTP)",
  description: "Nothing is asked for at sign-in until the secret is confirmed by a code. Beginning again replaces the unconfirmed secret.",
  access,
  responses: {
    200: {
      description: "The secret, for an authenticator app",
      schema: z.object({ secret: z.string(), otpauth_url: z.string(), qr_svg: z.string() }),
    },
    409: { description: "A second factor is enrolled already" },
  },
  secretFields: ["secret", "otpauth_url", "qr_svg"],
  handler: async ({ deps, caller }) => {
    const account = await accountOf(deps.db, caller);
    const totp = newTotp(account.email);
    if (!(await storePendingSecret(deps.db, deps.keyring, account.id, totp.secret))) {
      throw refuse("CONFLICT", "a second factor is enrolled already: remove it first with DELETE and your password");
    }
    return { status: 200, headers: { "cache-control": "no-store" }, body: totp };
  },
});

const confirm = route({
  method: "POST",
  path: `${path}/confirm`,
  summary: "Confirm the second factor with a code of it",
  description:
    "While the account's email is not proved, a link that proves it is mailed (`POST /v1/auth/email/confirm`): from then on a reset of the password leaves the second factor.",
  access,
  body: z.strictObject({ code: codeText }),
  responses: {
    200: {
      description: "Enrolled; the backup codes are shown this once, each is good once",
      schema: z.object({ backup_codes: z.array(z.string()).length(10) }),
    },
    422: { description: "The code is wrong" },
  },
  secretFields: ["backup_codes"],
  handler: async ({ deps, caller, body }) => {
    const account = await accountOf(deps.db, caller);
    const codes = await deps.db.transaction(async (trx) => {
      const made = await confirmTotp(trx, deps.keyring, account.id, body.code);
      if (!made) return null;
      // A reset may have ended this session while its account was waited for: what it took away must not come back.
      const isAlive = await trx("credentials").where({ id: caller.credentialId, revoked_at: null }).forShare().first("id");
      if (!isAlive) throw unauthenticated("this session has just been ended: sign in again");
      await recordAudit(trx, caller, {
        action: "second-factor.enrolled",
        target: { kind: "account", id: account.id, name: account.email },
      });
      await mailProof(deps, trx, account, caller.org.live.slug);
      return made;
    });
    if (!codes && account.mfa_enrolled) throw refuse("CONFLICT", "a second factor is enrolled already");
    if (!codes)
      throw invalid({
        path: "code",
        message: "is not the present code of this secret: check the clock of the device, and begin with POST /v1/auth/mfa/totp",
      });
    return { status: 200, headers: { "cache-control": "no-store" }, body: { backup_codes: codes } };
  },
});

const remove = route({
  method: "DELETE",
  path,
  summary: "Remove your second factor",
  access: members(null),
  body: z.strictObject({ password: passwordText }),
  responses: { 204: { description: "Removed, with its backup codes" }, 403: { description: "The password is wrong" } },
  handler: async ({ deps, caller, body }) => {
    const account = await accountOf(deps.db, caller);
    await proveOwnPassword(deps, caller, account, body.password);
    await deps.db.transaction(async (trx) => {
      await removeTotp(trx, account.id);
      await recordAudit(trx, caller, { action: "second-factor.removed", target: { kind: "account", id: account.id, name: account.email } });
    });
    return { status: 204 };
  },
});

export const mfaRoutes = [enrol, confirm, remove];
