import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { until } from "../harness/wait.ts";
import { mintKey, type Org, sender, signUp, startServices } from "./auth-app.ts";
import { codeOf, enrolSecondFactor } from "./second-factor.ts";

// Anybody can sign up with anybody's email. What proves one is a link that only the mailbox got.
const app = await startServices(services);
afterAll(() => app.close());

const send = sender(app);
const ownersPassword = "nineteen grey herons";
const mailsTo = async (email: string) => (await app.mails()).filter(({ to }) => to.includes(email));
/** The token of the newest mailed link to a page, once there is one more than `before`. */
const linked = (email: string, page: string, before = 0): Promise<string> =>
  until(async () => {
    const tokens = (await mailsTo(email)).map(({ text }) => new RegExp(`/${page}\\?token=([\\w-]{43})`).exec(text)?.[1]).filter(Boolean);
    return tokens.length > before && tokens.at(-1);
  });
let resets = 0;
async function reset(person: { email: string }): Promise<Awaited<ReturnType<typeof send>>> {
  const before = (await mailsTo(person.email)).filter(({ text }) => text.includes("/reset?token=")).length;
  expect((await send("POST", "/v1/auth/password/forgot", {}, { email: person.email })).status).toBe(202);
  resets += 1;
  const token = await linked(person.email, "reset", before);
  return send("POST", "/v1/auth/password/reset", {}, { token, new_password: `${ownersPassword} ${resets}` });
}
const login = (person: { email: string; slug?: string }, extra: object = {}) =>
  send("POST", "/v1/auth/login", {}, { email: person.email, password: `${ownersPassword} ${resets}`, ...extra });
const audited = async (org: Org, action: string) => {
  const { rows } = await app.deps.db.raw("select detail from audit_events where org_id = ? and action = ?", [org.orgId, action]);
  return rows.map(({ detail }: { detail: object }) => detail);
};

test("an owner's first reset takes the factor of a stranger who signed up with the owner's email, and says so in answer, mail and audit", async () => {
  const stranger = await signUp(app);
  const { backup } = await enrolSecondFactor(app, stranger);
  const key = await mintKey(app, stranger, { name: "stranger's own" });
  const testKey = await mintKey(app, stranger, { name: "a test key", kind: "test" });
  const answer = await reset(stranger);
  expect([answer.status, answer.json()]).toEqual([200, { second_factor_removed: true, message: expect.stringContaining("removed") }]);
  const entered = await login(stranger);
  expect(entered.status, entered.text).toBe(200);
  expect((await login(stranger, { code: backup[0] })).status).toBe(200); // no factor is asked for, so none is looked at
  const codes = app.deps.db("backup_codes as b").join("accounts as a", "a.id", "b.account_id").where({ "a.email": stranger.email });
  expect(await codes).toEqual([]);
  expect((await send("GET", "/v1/me", stranger.auth)).status).toBe(401);
  expect(await audited(stranger, "email.proved")).toEqual([{ by: "password-reset" }]);
  expect(await audited(stranger, "second-factor.removed")).toEqual([{ because: "enrolled before the email was proved" }]);
  const mail = await until(async () => (await mailsTo(stranger.email)).find(({ subject }) => subject === "Your password was set anew"));
  expect(mail.text).toContain("A second factor that had been set up before is removed");
  for (const { key_prefix } of [key, testKey]) expect(mail.text).toContain(key_prefix);
  // Credentials are the organisation's (spec 1 §5.1): told, and not taken.
  expect((await send("GET", "/v1/me", { "x-api-key": key.secret })).status).toBe(200);
});

test("a factor that is enrolled after a proof stays at every reset", async () => {
  const owner = await signUp(app);
  expect((await reset(owner)).status).toBe(204); // the first proof, and nothing to take away
  expect((await mailsTo(owner.email)).filter(({ subject }) => subject === "Your password was set anew")).toEqual([]);
  const session = (await login(owner)).json<{ session_token: string }>().session_token;
  const { backup } = await enrolSecondFactor(app, { auth: { authorization: `Bearer ${session}` } });
  expect((await reset(owner)).status).toBe(204);
  expect((await login(owner)).json().error).toBe("MFA_REQUIRED");
  expect((await login(owner, { code: backup[0] })).status).toBe(200);
  expect(await audited(owner, "second-factor.removed")).toEqual([]);
});

test("enrolling mails a link that proves the email, in a session of that account, once; from then on the factor stays", async () => {
  const [owner, other] = [await signUp(app), await signUp(app)];
  const { backup } = await enrolSecondFactor(app, owner);
  const token = await linked(owner.email, "confirm");
  const confirm = (auth: Record<string, string>, given = token) => send("POST", "/v1/auth/email/confirm", auth, { token: given });
  expect((await confirm({})).status).toBe(401);
  expect((await confirm(other.auth)).status).toBe(410);
  expect((await confirm(owner.auth, "x".repeat(43))).status).toBe(410);
  const page = await app.call({ host: `${owner.slug}.localhost:8080`, path: `/confirm?token=${token}` });
  expect([page.status, page.headers.location]).toEqual([302, `/sign-in?next=${encodeURIComponent(`/confirm?token=${token}`)}`]);
  const both = await Promise.all([confirm(owner.auth), confirm(owner.auth)]);
  expect(both.map(({ status }) => status).sort()).toEqual([204, 410]);
  expect(await audited(owner, "email.proved")).toEqual([{ by: "confirmation" }]);
  expect((await reset(owner)).status).toBe(204);
  expect((await login(owner)).json().error).toBe("MFA_REQUIRED");
  expect((await login(owner, { code: backup[0] })).status).toBe(200);
});

test("an invitation proves nothing: whoever invites sees its link", async () => {
  const inviter = await signUp(app);
  const email = `invited-${randomUUID()}@example.com`;
  const invited = await send("POST", "/v1/auth/invitations", inviter.auth, { email, role: "member" });
  const token = new URL(invited.json<{ accept_url: string }>().accept_url).searchParams.get("token");
  const joined = await send("POST", "/v1/auth/invitations/accept", {}, { token, name: "Not Them", password: "a hill of quiet oaks" });
  await enrolSecondFactor(app, { auth: { authorization: `Bearer ${joined.json().session_token}` } });
  expect((await reset({ email })).status).toBe(200);
  expect((await login({ email })).status).toBe(200);
});

test("an enrolment that a reset overtook does not come back after it", async () => {
  const stranger = await signUp(app);
  const { secret } = (await send("POST", "/v1/auth/mfa/totp", stranger.auth)).json<{ secret: string }>();
  const trx = await app.deps.db.transaction();
  await trx("accounts").where({ email: stranger.email }).update({ mfa_secret: null });
  await trx("credentials").where({ member_id: stranger.memberId }).update({ revoked_at: new Date() });
  const confirming = send("POST", "/v1/auth/mfa/totp/confirm", stranger.auth, { code: codeOf(secret) });
  try {
    await until(async () => {
      const { rows } = await app.deps.db.raw(
        "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'update \"accounts\"%'",
      );
      return rows.length > 0;
    });
  } finally {
    await trx.commit();
  }
  expect((await confirming).status).toBe(401);
  expect(await app.deps.db("accounts").where({ email: stranger.email }).first("mfa_enrolled")).toEqual({ mfa_enrolled: false });
});
