import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { hashPassword } from "../../api/services/auth/password-hash.ts";
import type { Knex } from "../../platform/postgres.ts";
import type { Answer } from "../harness/http.ts";
import { until } from "../harness/wait.ts";
import { goodPassword, type Org, signUp, startServices } from "./auth-app.ts";
import { codeOf, confirmSecondFactor, enrolSecondFactor } from "./second-factor.ts";

const app = await startServices(services);
afterAll(() => app.close());

const newPassword = "nineteen grey herons";
const post = (path: string, body?: unknown, headers: Record<string, string> = {}) =>
  app.call({ method: "POST", path, headers, ...(body === undefined ? {} : { body }) });
const login = (org: Org, extra: object = {}) => post("/v1/auth/login", { email: org.email, password: org.password, ...extra });
const me = (token: unknown) => app.call({ path: "/v1/me", headers: { authorization: `Bearer ${token}` } });
const enrol = (org: Org) => enrolSecondFactor(app, org);

describe("sessions", () => {
  test("list one's own with device and address; ending one ends it at once; another member's is 404", async () => {
    const [org, other] = [await signUp(app), await signUp(app)];
    const second = await app.call({
      method: "POST",
      path: "/v1/auth/login",
      headers: { "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0" },
      body: { email: org.email, password: org.password },
    });
    const token = second.json().session_token;
    const list = (await app.call({ path: "/v1/auth/sessions", headers: org.auth })).json<{ items: Record<string, unknown>[] }>();
    expect(list.items.map(({ device, address, current }) => [device, address, current])).toEqual([
      ["Firefox on Linux", "127.0.0.1", false],
      ["Unknown device", "127.0.0.1", true],
    ]);
    expect(JSON.stringify(list)).not.toContain("kses_");
    const id = list.items[0]?.id;
    const remove = (headers: Record<string, string>) => app.call({ method: "DELETE", path: `/v1/auth/sessions/${id}`, headers });
    expect((await remove(other.auth)).status).toBe(404);
    expect((await me(token)).status).toBe(200);
    expect((await remove(org.auth)).status).toBe(204);
    expect((await me(token)).status).toBe(401);
    expect((await remove(org.auth)).status).toBe(404);
  });

  test("a session ends with its lifetime, and after the idle timeout; use keeps it alive", async () => {
    const org = await signUp(app);
    const patch = await app.call({
      method: "PATCH",
      path: "/v1/auth/settings",
      headers: org.auth,
      body: { session: { lifetime_hours: 2, idle_timeout_minutes: 10 } },
    });
    expect(patch.status).toBe(200);
    const body = (await login(org)).json<{ session_token: string; session_expires_at: string }>();
    expect(Date.parse(body.session_expires_at) - Date.now()).toBeGreaterThan(119 * 60_000);
    expect(Date.parse(body.session_expires_at) - Date.now()).toBeLessThanOrEqual(120 * 60_000);
    const session = () => app.deps.db("credentials").where({ key_prefix: body.session_token.slice(0, 11) });
    const usedMinutesAgo = (minutes: number) => session().update({ last_used_at: new Date(Date.now() - minutes * 60_000) });
    await usedMinutesAgo(9);
    expect((await me(body.session_token)).status).toBe(200);
    await until(async () => (await session().first("last_used_at")).last_used_at > new Date(Date.now() - 60_000));
    await usedMinutesAgo(11);
    expect((await me(body.session_token)).status).toBe(401);
    await session().update({ last_used_at: new Date(), expires_at: new Date(Date.now() - 1) });
    expect((await me(body.session_token)).status).toBe(401);
  });
});

describe("passwords", () => {
  test("changing it ends the other sessions in every organisation and keeps this one", async () => {
    const org = await signUp(app);
    const elsewhere = await signUp(app, { email: org.email, password: org.password });
    const answer = await post("/v1/auth/password", { current_password: org.password, new_password: newPassword }, org.auth);
    expect(answer.status).toBe(204);
    expect((await me(org.token)).status).toBe(200);
    expect((await me(elsewhere.token)).status).toBe(401);
    expect((await login(org, { org_slug: org.slug })).status).toBe(401);
    expect((await login(org, { org_slug: org.slug, password: newPassword })).status).toBe(200);
  });

  test("a wrong current password is 403 and counts toward the lock; a bad new one is 422", async () => {
    const org = await signUp(app);
    const change = (current_password: string, new_password: string) =>
      post("/v1/auth/password", { current_password, new_password }, org.auth);
    expect((await change(org.password, "too short")).status).toBe(422);
    expect((await change(org.password, "qwertyuiopasdfghjklzxcvbnm")).status).toBe(422);
    for (let n = 0; n < 5; n++) expect((await change("wrong", newPassword)).status).toBe(403);
    expect((await change(org.password, newPassword)).status).toBe(423);
    expect((await me(org.token)).status).toBe(200);
  });

  test("forgot is 202 for every email; the mailed link sets a password once, ends all sessions and lifts the lock", async () => {
    const org = await signUp(app);
    for (let n = 0; n < 5; n++) await login(org, { password: "wrong" });
    const known = await post("/v1/auth/password/forgot", { email: org.email });
    const unknown = await post("/v1/auth/password/forgot", { email: "nobody@example.com" });
    expect([known.status, unknown.status, known.text]).toEqual([202, 202, unknown.text]);
    const mail = await until(async () => (await app.mails()).find(({ to }) => to.includes(org.email)));
    const token = new RegExp(`http://${org.slug}\\.localhost:8080/reset\\?token=([\\w-]+)`).exec(mail.text)?.[1];
    expect(token).toMatch(/^[\w-]{43}$/);
    expect((await app.mails()).some(({ to }) => to.includes("nobody"))).toBe(false);
    const reset = (body: object) => post("/v1/auth/password/reset", body);
    expect((await reset({ token, new_password: "short" })).status).toBe(422);
    expect((await reset({ token: "x".repeat(43), new_password: newPassword })).status).toBe(404);
    const both = await Promise.all([reset({ token, new_password: newPassword }), reset({ token, new_password: `${newPassword} too` })]);
    expect(both.map(({ status }) => status).sort()).toEqual([204, 410]);
    expect((await reset({ token, new_password: newPassword })).status).toBe(410);
    expect((await me(org.token)).status).toBe(401);
    const set = both[0]?.status === 204 ? newPassword : `${newPassword} too`;
    expect((await login(org, { password: set })).status).toBe(200);
  });

  test("a reset link is void after an hour, and once the password has been changed", async () => {
    const org = await signUp(app);
    const link = async (): Promise<string> => {
      const before = (await app.mails()).length;
      await post("/v1/auth/password/forgot", { email: org.email });
      return until(async () => {
        const mails = (await app.mails()).slice(before).filter(({ to }) => to.includes(org.email));
        return /token=([\w-]+)/.exec(mails.at(-1)?.text ?? "")?.[1];
      });
    };
    const old = await link();
    await app.deps.db("password_resets").update({ expires_at: new Date(Date.now() - 1) });
    expect((await post("/v1/auth/password/reset", { token: old, new_password: newPassword })).status).toBe(410);
    const next = await link();
    expect((await post("/v1/auth/password", { current_password: org.password, new_password: newPassword }, org.auth)).status).toBe(204);
    expect((await post("/v1/auth/password/reset", { token: next, new_password: goodPassword })).status).toBe(410);
  });

  test("a sign-in that began with the old password gets no session past a reset, a removal or a sign-out that overtook it", async () => {
    const org = await signUp(app);
    const account = await app.deps.db("accounts").where({ email: org.email }).first("id");
    const overtake = async (change: (trx: Knex.Transaction) => Promise<unknown>, begin: () => Promise<Answer>): Promise<Answer> => {
      const trx = await app.deps.db.transaction();
      await change(trx); // holds the row: the sign-in has proved what it must and waits to write its session
      const answer = begin();
      await until(async () => {
        const { rows } = await app.deps.db.raw(
          "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for share%'",
        );
        return rows.length > 0;
      });
      await trx.commit();
      return answer;
    };
    const toTest = () => post("/v1/auth/switch-org", { org_slug: `${org.slug}-test` }, org.auth);
    const hash = await hashPassword(newPassword);
    const reset = await overtake(
      (trx) => trx("accounts").where({ id: account.id }).update({ password_hash: hash }),
      () => login(org),
    );
    expect(reset.status).toBe(401);
    const ended = await overtake(
      (trx) =>
        trx("credentials")
          .where({ key_prefix: org.token.slice(0, 11) })
          .update({ revoked_at: new Date() }),
      toTest,
    );
    expect(ended.status).toBe(401);
    const removed = await overtake(
      (trx) => trx("members").where({ account_id: account.id }).update({ removed_at: new Date() }),
      () => login(org, { password: newPassword }),
    );
    expect(removed.status).toBe(401);
    expect(await app.deps.db("credentials").where({ member_id: org.memberId, revoked_at: null })).toEqual([]);
  });

  test("no stored row or waiting job holds a password, a token or a session in clear", async () => {
    const org = await signUp(app);
    await post("/v1/auth/password/forgot", { email: org.email });
    const tables = ["accounts", "credentials", "credential_secrets", "password_resets", "audit_events", "idempotency_keys"];
    for (const table of tables) {
      const { rows } = await app.deps.db.raw(`select t::text as row from ${table} t`);
      const text = JSON.stringify(rows);
      expect([table, text.includes(org.password), text.includes(org.token)]).toEqual([table, false, false]);
    }
  });
});

describe("the second factor", () => {
  test("enrols with secret, address and QR code; is asked for at sign-in once confirmed; a code is good once", async () => {
    const org = await signUp(app);
    const begun = await post("/v1/auth/mfa/totp", undefined, org.auth);
    const { secret, otpauth_url, qr_svg } = begun.json<{ secret: string; otpauth_url: string; qr_svg: string }>();
    expect(otpauth_url).toContain(`secret=${secret}`);
    expect(qr_svg).toMatch(/^<svg/);
    expect((await login(org)).status).toBe(200); // not yet confirmed
    expect((await post("/v1/auth/mfa/totp/confirm", { code: "000000" }, org.auth)).status).toBe(422);
    const again = (await post("/v1/auth/mfa/totp", undefined, org.auth)).json<{ secret: string }>().secret;
    expect((await post("/v1/auth/mfa/totp/confirm", { code: codeOf(secret) }, org.auth)).status).toBe(422); // replaced
    const codes = await confirmSecondFactor(app, org, again);
    expect([codes.length, new Set(codes).size]).toEqual([10, 10]);
    expect((await post("/v1/auth/mfa/totp", undefined, org.auth)).status).toBe(409);
    const asked = await login(org);
    expect([asked.status, asked.json().error]).toEqual([401, "MFA_REQUIRED"]);
    const wrong = await login(org, { code: codeOf(again, 9) });
    expect([wrong.status, wrong.json().error]).toEqual([401, "MFA_INVALID"]);
    expect((await login(org, { password: "wrong", code: codeOf(again, 1) })).json().error).toBe("UNAUTHORIZED");
    const code = codeOf(again);
    const both = await Promise.all([login(org, { code }), login(org, { code })]);
    expect(both.map(({ status }) => status).sort()).toEqual([200, 401]);
    expect((await login(org, { code })).json().error).toBe("MFA_INVALID");
    expect((await login(org, { code: codeOf(again, 1) })).status).toBe(200);
    expect((await login(org, { code })).json().error).toBe("MFA_INVALID"); // older than the last one used
  });

  test("a backup code is good once, however it is typed", async () => {
    const org = await signUp(app);
    const { backup } = await enrol(org);
    const typed = backup[0]?.toUpperCase().replaceAll("-", " ");
    expect((await login(org, { code: typed })).status).toBe(200);
    expect((await login(org, { code: backup[0] })).json().error).toBe("MFA_INVALID");
    expect((await login(org, { code: backup[1] })).status).toBe(200);
  });

  test("wrong codes lock like wrong passwords", async () => {
    const org = await signUp(app);
    const { backup } = await enrol(org);
    for (let n = 0; n < 5; n++) expect((await login(org, { code: "not-a-backup-code" })).json().error).toBe("MFA_INVALID");
    expect((await login(org, { code: backup[0] })).status).toBe(423);
  });

  test("is asked for before the account gets another organisation", async () => {
    const org = await signUp(app);
    const { backup } = await enrol(org);
    const body = { org_slug: `${org.slug}-b`, email: org.email, password: org.password, name: "X" };
    expect((await post("/v1/auth/signup", body)).json().error).toBe("MFA_REQUIRED");
    expect((await post("/v1/auth/signup", { ...body, code: backup[0] })).status).toBe(201);
  });

  test("is removed with the password only", async () => {
    const org = await signUp(app);
    await enrol(org);
    const remove = (password: string) => app.call({ method: "DELETE", path: "/v1/auth/mfa/totp", headers: org.auth, body: { password } });
    expect((await remove("wrong")).status).toBe(403);
    expect((await login(org)).json().error).toBe("MFA_REQUIRED");
    expect((await remove(org.password)).status).toBe(204);
    expect((await login(org)).status).toBe(200);
  });

  test("enforced and not enrolled: login succeeds and the session may only enrol, until it has", async () => {
    const org = await signUp(app);
    await app.call({ method: "PATCH", path: "/v1/auth/settings", headers: org.auth, body: { mfa: { mode: "enforced" } } });
    const answer = await login(org);
    expect([answer.status, answer.json().mfa_enrollment_required]).toEqual([200, true]);
    const session = { ...org, auth: { authorization: `Bearer ${answer.json().session_token}` } };
    for (const auth of [session.auth, org.auth]) {
      for (const path of [
        "/v1/auth/sessions",
        "/v1/auth/members",
        "/v1/auth/settings",
        "/v1/auth/api-keys",
        "/v1/auth/permissions",
        "/v1/workspaces",
      ]) {
        expect([path, (await app.call({ path, headers: auth })).status]).toEqual([path, 403]);
      }
      expect((await app.call({ path: "/v1/me", headers: auth })).status).toBe(200);
      expect((await post("/v1/auth/token", undefined, auth)).status).toBe(403);
    }
    await enrol(session);
    expect((await app.call({ path: "/v1/auth/members", headers: session.auth })).status).toBe(200);
    expect((await login(org)).json().error).toBe("MFA_REQUIRED");
  });
});
