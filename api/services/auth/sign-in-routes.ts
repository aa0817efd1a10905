import { z } from "zod";
import { newId } from "#platform/ids.ts";
import { anyOf, members, open } from "../../http/access.ts";
import { nameText } from "../../http/fields.ts";
import { invalid, notFound, Refusal } from "../../http/refusal.ts";
import { type Context, route } from "../../http/route.ts";
import { type Account, findAccount, insertAccount, type Membership, membershipIn, type OrgName } from "./account.ts";
import { recordAudit, recordAuditOf } from "./audit.ts";
import { createOrg, slugProblem, slugTaken } from "./organisation.ts";
import { checkNewPassword } from "./password.ts";
import { hashPassword } from "./password-hash.ts";
import { countPasswordAttempt, proveAccount, type SignInAttempt } from "./prove.ts";
import { codeText, emailText, loginResponse, passwordText } from "./schema.ts";
import { endedCookie, loginReply, openSession, orgSlugOf, type SignedInAccount } from "./session.ts";
import { policyOf } from "./sign-in-policy.ts";

const signedIn = { description: "Signed in; the session cookie is set too", schema: loginResponse };
const sessionsOnly = { otherKinds: 403 as const };

/** A sign-in attempt as the request tells it. */
export function attemptOf(
  context: Pick<Context<unknown, unknown, unknown, unknown, null>, "address" | "requestId" | "request">,
  email: string,
  orgSlug: string | null,
): SignInAttempt {
  return {
    email,
    orgSlug,
    address: context.address,
    requestId: context.requestId,
    userAgent: context.request.headers["user-agent"]?.slice(0, 500) ?? null,
  };
}

interface Entry {
  membership: Membership;
  org: OrgName;
}

/** Where an account enters: the organisation named, or its only one. Null when it is no member there; 409 with the choice when there are several. */
function chooseEntry(account: Account, slug: string | null): Entry | null {
  if (slug !== null) return membershipIn(account, slug);
  const [only, ...others] = account.memberships;
  if (!only) return null;
  if (others.length > 0) {
    throw new Refusal(409, "ORG_REQUIRED", "this account belongs to several organisations: send org_slug with one of them", {
      fields: { orgs: account.memberships.map(({ org }) => ({ org_id: org.id, org_slug: org.slug, name: org.name })) },
    });
  }
  return { membership: only, org: only.org };
}

const signup = route({
  method: "POST",
  path: "/v1/auth/signup",
  summary: "Create an organisation and sign in as its owner",
  description:
    "Makes the organisation, its paired test organisation and, for a new email, the account. An email that has an account needs that account's password (and `code`, when it has a second factor). A taken slug is 409.",
  access: open(),
  limit: "signup",
  body: z.strictObject({
    org_slug: z.string().superRefine((slug, context) => {
      const problem = slugProblem(slug);
      if (problem) context.addIssue({ code: "custom", message: problem });
    }),
    org_name: nameText.optional(),
    email: emailText,
    password: passwordText,
    name: nameText,
    code: codeText.optional(),
  }),
  responses: { 201: signedIn, 401: { description: "The email has an account, and the password or code is not its own" } },
  handler: async (context) => {
    const { deps, body, address, request, requestId } = context;
    const { org_slug: slug, email } = body;
    if (await deps.db("orgs").where({ slug }).first("id")) throw slugTaken(slug);
    const existing = await findAccount(deps.db, { email });
    let account: SignedInAccount;
    let hash: string | null = null;
    if (existing) {
      await countPasswordAttempt(deps, email);
      ({ account } = await proveAccount(deps, attemptOf(context, email, null), { password: body.password, code: body.code }, () => true));
    } else {
      checkNewPassword(body.password, policyOf({}).password, "password", [email, body.name, slug]);
      hash = await hashPassword(body.password);
      account = { id: newId(), email, name: body.name, mfa_enrolled: false };
    }
    const session = await deps.db.transaction(async (trx) => {
      const { live, test } = await createOrg(trx, slug, body.org_name ?? slug);
      if (hash !== null) await insertAccount(trx, { id: account.id, email, name: body.name, password_hash: hash });
      const membership: Membership = { member_id: newId(), role: "owner", org: live, test_org: test, policy: policyOf({}) };
      await trx("members").insert({ id: membership.member_id, org_id: live.id, account_id: account.id, role: "owner" });
      const actor = { kind: "member" as const, id: membership.member_id, name: account.name };
      await recordAuditOf(
        trx,
        { org_id: live.id, actor, address, request_id: requestId },
        { action: "org.created", target: { kind: "org", id: live.id, name: live.slug }, detail: { test_org_id: test.id } },
      );
      return openSession(trx, { account, membership, org: live, address, request, requestId, by: "signup" });
    });
    return loginReply(deps, context.host, session, 201);
  },
});

const login = route({
  method: "POST",
  path: "/v1/auth/login",
  summary: "Sign in",
  description:
    "`code` is a TOTP or a backup code. Until the password is right every failure is the same 401, for unknown emails too; after it: 423 `ACCOUNT_LOCKED` with `locked_until`, 409 `ORG_REQUIRED` with `orgs`, 401 `MFA_REQUIRED` or `MFA_INVALID`. On an organisation's own host `org_slug` need not be sent.",
  access: open(),
  limit: "login",
  body: z.strictObject({ email: emailText, password: passwordText, org_slug: z.string().max(63).optional(), code: codeText.optional() }),
  responses: {
    200: signedIn,
    401: { description: "UNAUTHORIZED, MFA_REQUIRED or MFA_INVALID" },
    409: { description: "ORG_REQUIRED, with `orgs`" },
    423: { description: "ACCOUNT_LOCKED, with `locked_until`" },
  },
  handler: async (context) => {
    const { deps, body, address, request, requestId } = context;
    await countPasswordAttempt(deps, body.email);
    const slug = body.org_slug ?? orgSlugOf(context.host);
    const attempt = attemptOf(context, body.email, slug);
    const { account, chosen } = await proveAccount(deps, attempt, { password: body.password, code: body.code }, (found) =>
      chooseEntry(found, slug),
    );
    const session = await deps.db.transaction((trx) => openSession(trx, { account, ...chosen, address, request, requestId, by: "login" }));
    return loginReply(deps, context.host, session);
  },
});

const logout = route({
  method: "POST",
  path: "/v1/auth/logout",
  summary: "End this session",
  access: members(null, { whileEnrolling: true }),
  responses: { 204: { description: "The session, and every JWT of it, is dead at once" } },
  handler: async ({ deps, caller }) => {
    await deps.db.transaction(async (trx) => {
      await trx("credentials").where({ id: caller.credentialId }).update({ revoked_at: trx.fn.now() });
      await recordAudit(trx, caller, {
        action: "session.ended",
        target: { kind: "session", id: caller.credentialId, name: caller.credentialName },
      });
    });
    return { status: 204, headers: { "set-cookie": endedCookie(deps) } };
  },
});

const token = route({
  method: "POST",
  path: "/v1/auth/token",
  summary: "Get an access token (RS256 JWT, 15 minutes) for this session",
  access: anyOf(["session"], sessionsOnly),
  responses: {
    200: {
      description: "The token; it dies with its session",
      schema: z.object({ access_token: z.string(), access_token_expires_in: z.int() }),
    },
  },
  secretFields: ["access_token"],
  handler: async ({ deps, caller }) => {
    const { token: access_token, expiresInSeconds } = await deps.jwt.sign(
      { sid: caller.credentialId, sub: caller.member?.id ?? "", org_id: caller.org.id },
      { org_slug: caller.org.slug, email: caller.member?.email, name: caller.member?.name },
    );
    return { status: 200, headers: { "cache-control": "no-store" }, body: { access_token, access_token_expires_in: expiresInSeconds } };
  },
});

const switchOrg = route({
  method: "POST",
  path: "/v1/auth/switch-org",
  summary: "Sign in to another of your organisations, or to the test one",
  access: anyOf(["session"], sessionsOnly),
  body: z.strictObject({ org_slug: z.string().max(63) }),
  responses: { 200: signedIn },
  secretFields: ["session_token", "access_token"],
  handler: async (context) => {
    const { deps, caller, body, address, request, requestId } = context;
    if (!caller.member) throw invalid({ path: "", message: "needs a member's session" });
    const account = await findAccount(deps.db, { id: caller.member.accountId });
    const entry = account && membershipIn(account, body.org_slug);
    if (!entry) throw notFound(`the organisation ${body.org_slug}`);
    const session = await deps.db.transaction((trx) =>
      openSession(trx, { account, ...entry, address, request, requestId, by: "switch-org", from: caller.credentialId }),
    );
    return loginReply(deps, context.host, session);
  },
});

export const signInRoutes = [signup, login, logout, token, switchOrg];
